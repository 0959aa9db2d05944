"""A module at any size, N or the side of an image: counted at a few, with polynomials through the counts.

The polynomials are exact, pass through more counts than determine them, and are checked at further sizes. Between these
sizes ledgers are evaluated where every cost of every row has a polynomial, and counted elsewhere. `closed_form` writes
the polynomials of MACs and FLOPs; where padding steps, those of the sizes with the same remainder.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count, islice
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.comparing.sweep import PossibleSizes
from xfcost.formulas.exact_form import CHECKS, Points, leading_term, through, value, with_form, written
from xfcost.formulas.letters import Polynomial, order
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.join import growth_exponent
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.ledger.ran import ClosedForm

LedgerAt = Callable[[int], Ledger]
"""Size -> the ledger of the module there; an XfcostError where it does not run."""
Series = tuple[str, str]
"""(path of a row, quantity); the path is empty of totals, and `<cache>` of the cache."""
Forms = dict[Series, Polynomial]

_TOTALS: Final = ("macs", "flops", "comparisons", "params")
_COSTS: Final = (*_TOTALS, "moved", "attention_entries")
# Parts of a row, and their numbers that may grow.
_PARTS: Final = {"matrix": ("entries", "alive", "saved", "statistics"), "core": ("times", "queries", "keys")}
_MACS: Final = ("", "macs")
_CACHE: Final = "<cache>"

_MOST: Final = 2**20
# A run of so many operations is the last: larger sizes have more.
_SLOW: Final = 7_500

_POINTS: Final = 5  # determine a degree of 2, and check it
_MORE_POINTS: Final = 7  # determine a degree of 4
# Other points in terms of the own one, times / parts + more: the next one, and others of mixed remainders.
_LARGER: Final = (
    (2, 1, 0), (1, 1, 1), (3, 1, 1), (5, 1, 3), (2, 1, 3), (1, 1, 2), (4, 1, 0), (3, 1, 0), (5, 1, 0), (6, 1, 0),
)  # fmt: skip
# A limit of the model allows these, or a window that is not full yet.
_SMALLER: Final = ((1, 2, 0), (1, 1, -1), (3, 4, 0), (1, 2, 1), (1, 1, -2), (2, 3, 0), (1, 3, 0), (7, 8, 0))
# How far apart the points are at which polynomials are checked, and how many periods off.
_STEP: Final = 8
_FAR: Final = (101, 37, 7)

# A fit with one of these periods finds every period that divides it.
_PERIODS: Final = (24, 840)
# The same of the sides of images: patches and strides of convolutions.
_IMAGE_PERIODS: Final = (32, 96, 28)
_MOST_WINDOWS: Final = 4
_EVERY_REMAINDER: Final = 8  # up to this period
# Periods are looked for up to this N, and up to so many times the own one: masks and tables are made as a model runs.
_MOST_TOKENS: Final = 2**14
_MOST_TIMES: Final = 32

# What the side of an image may be a multiple of: patches, and strides of convolutions; the finest first.
_GRAINS: Final = (1, 2, 4, 8, 16, 32, 7, 14, 28)


class PolynomialFit(NamedTuple):
    """The polynomials that fit at some sizes."""

    forms: Forms
    sizes: tuple[int, ...]
    unfit: tuple[Series, ...]
    """The MACs, of rows and in all, that no polynomial fits."""
    period: int = 1
    """In points."""


class CountedSizes:
    """The ledgers of a module at any size, from one at which it runs on.

    Args:
        own: that size.
        ledger_at: counts the module.
        most: sizes beyond are not counted.
        counted: the same where no polynomials hold.
        slow: operations of a run after which larger sizes are not counted.
        sides: are they sides of images?
        work_done: gives the operations of all runs so far.
    """

    def __init__(  # noqa: PLR0913 - options
        self, own: int, ledger_at: LedgerAt, most: float = _MOST, *, counted: int = _MOST, slow: float = _SLOW,
        sides: bool = False, work_done: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        self.own, self.most, self._most_counted = own, most, max(own, counted)
        self._ledger_at, self._slow, self._sides, self._work_done = ledger_at, slow, sides, work_done
        self._known: dict[int, Ledger | XfcostError] = {}
        self._costs: dict[int, dict[Series, int]] = {}

    def ledger(self, size: int) -> Ledger:
        """The ledger at a size: evaluated where polynomials hold, else counted.

        Raises:
            XfcostError: the module does not run there, or a smaller size took too long.
        """
        if self._fitted is None or size in self._known or not self.axis.is_step(size):
            return self.counted(size)
        forms, first, last = self._fitted
        if not first <= size <= last:
            return self.counted(size)
        found = {series: int(value(form, size)) for series, form in forms.items()}
        own = self.counted(self.own)
        rows = tuple(_with_costs(row, found) for row in own.rows)
        return _with_cache(msgspec.structs.replace(own, rows=rows, activations=None), found)

    def counted(self, size: int) -> Ledger:
        """The ledger at a size, counted once."""
        if size not in self._known:
            if size > self.most:
                raise UsageError(f"it is counted up to {self.most:,}: a run takes too long there")
            before = self._work_done()
            try:
                self._known[size] = self._ledger_at(size)
            except XfcostError as error:
                self._known[size] = error
            if self._work_done() - before > self._slow and size > 2 * self.own:
                self.most = size
        found = self._known[size]
        if isinstance(found, XfcostError):
            raise found
        return found

    def runs(self, size: int) -> bool:
        with suppress(XfcostError):
            return bool(self.counted(size))
        return False

    def costs(self, size: int) -> dict[Series, int]:
        """Every cost of every row's block, and the totals."""
        if size not in self._costs:
            self._costs[size] = dict(_costs(self.counted(size)))
        return self._costs[size]

    @cached_property
    def axis(self) -> PossibleSizes:
        """The sizes that it can have: all, squares, or multiples of a divisor of its own.

        Sides of images are multiples of the least step that costs something else.
        """
        own, side = self.own, math.isqrt(self.own)
        if self._sides:
            steps, macs = filter(lambda step: self.runs(own + step), sorted(_GRAINS)), self.counted(own).total("macs")
            return PossibleSizes(next((step for step in steps if self.counted(own + step).total("macs") != macs), own))
        if self.runs(own + 1) or (own > 1 and self.runs(own - 1)):
            return PossibleSizes()
        if side * side == own and self.runs((side + 1) ** 2):
            return PossibleSizes(root=2)
        divisors = (number for number in range(2, own) if own % number == 0)
        return PossibleSizes(next((one for one in divisors if self.runs(own + one) or self.runs(own - one)), own))

    @property
    def evaluated(self) -> bool:
        """Are ledgers evaluated from polynomials, and not each counted?"""
        return self._fitted is not None

    @cached_property
    def _fitted(self) -> tuple[Forms, int, int] | None:
        """The polynomials of all costs that vary, and the first and last size up to which they meet the counts."""
        own = self.costs(self.own)
        for fit in self.fits():
            enough = len(fit.sizes) >= _POINTS and fit.forms.keys() == own.keys()
            if enough and all(self._same_rows(size) for size in fit.sizes):
                varying = {one for size in fit.sizes for one, number in self.costs(size).items() if number != own[one]}
                forms = {series: form for series, form in fit.forms.items() if series in varying}
                ends = (self._reach(forms, up=False), self._reach(forms, up=True))
                return forms, min(*ends, *fit.sizes), max(*ends, *fit.sizes)
        self.most = min(self.most, self._most_counted)
        return None

    def _reach(self, forms: Forms, *, up: bool) -> int:
        """The furthest size, upwards or downwards, up to which the module runs and meets the polynomials."""
        furthest, point, last = (
            self.own,
            self.axis.step_below(self.own),
            self.axis.step_below(int(self.most)) if up else 1,
        )
        for number in count(1):
            point = point * _STEP if up else point // _STEP
            at_end = point + number % 2 >= last if up else point <= last
            size = self.axis.value(last if at_end else point + number % 2)
            if not self.runs(size) or not self._same_rows(size):
                break
            evaluated = {series: value(form, size) for series, form in forms.items()}
            if self.costs(size) != self.costs(self.own) | evaluated:
                break
            furthest = size
            if at_end:
                break
        return furthest

    def _same_rows(self, size: int) -> bool:
        """Are the rows those of the own size, but for costs?"""
        own, other = (
            [(row.path, row.times, row.heads, row.matrix is None, row.core is None) for row in self.counted(one).rows]
            for one in (self.own, size)
        )
        return own == other

    @property
    def on_numbers(self) -> bool:
        """Does it run only on real tensors, which take memory?"""
        return self.counted(self.own).ran.tensors == "real"

    def fits(self, *, slow: bool = False) -> Iterator[PolynomialFit]:
        """Fits at larger sizes, and at smaller ones; where a run is `slow` smaller ones come first."""
        own = self.axis.step_below(self.own)
        sides = (_SMALLER,) if self.on_numbers else (_SMALLER, _LARGER) if slow else (_LARGER, _SMALLER)
        for side in sides:
            points = dict.fromkeys(own * times // parts + more for times, parts, more in side)
            sizes = [self.axis.value(point) for point in points if point > 0 and point != own]
            for most in (_POINTS, _MORE_POINTS):
                fit = self.fit(self.running(sizes, most - 1))
                if fit is not None:
                    yield fit

    def running(self, sizes: Iterable[int], most: int) -> list[int]:
        """The first `most` of `sizes` at which the module runs."""
        return list(islice((size for size in sizes if self.runs(size)), most))

    def fit(self, sizes: Sequence[int], period: int = 1) -> PolynomialFit | None:
        """Polynomials in the size, or in the side of a grid, through its counts there; None of too few sizes."""
        if len(sizes) < CHECKS:
            return None
        everywhere = {size: self.costs(size) for size in (self.own, *sizes)}
        own, forms = self.costs(self.own), Forms()
        for series in own:
            points = [(size, costs[series]) for size, costs in everywhere.items() if series in costs]
            form = self.polynomial(points)
            if form is not None:
                forms[series] = form
        unfit = tuple(one for one, number in own.items() if one[1] == "macs" and number and one not in forms)
        return PolynomialFit(forms, tuple(everywhere), unfit, period)

    def polynomial(self, points: Points) -> Polynomial | None:
        """That through the points: in the size, else in the side of a grid."""
        return through(points) or (through(points, 2) if self.axis.squares else None)


def _costs(ledger: Ledger) -> Iterator[tuple[Series, int]]:
    for cost in _TOTALS:
        yield ("", cost), ledger.total(cost) or 0
    for name, number in ({} if ledger.cache is None else msgspec.structs.asdict(ledger.cache)).items():
        yield (_CACHE, name), number
    for row in ledger.rows:
        for cost in _COSTS:
            yield (row.path, cost), getattr(row, cost)
        for part, names in _PARTS.items():
            found = getattr(row, part)
            for name in names if found is not None else ():
                yield (row.path, f"{part} {name}"), int(getattr(found, name))


def _with_cache(ledger: Ledger, costs: dict[Series, int]) -> Ledger:
    """The ledger with these bytes of its cache, and the decode step that reads it."""
    if ledger.cache is None:
        return ledger
    changed = {name: value for (part, name), value in costs.items() if part == _CACHE}
    ledger = msgspec.structs.replace(ledger, cache=msgspec.structs.replace(ledger.cache, **changed))
    return ledger if ledger.step is None else msgspec.structs.replace(ledger, step=ledger.decode_step())


def _with_costs(row: Operation, costs: dict[Series, int]) -> Operation:
    """The row with these costs."""
    changed: dict[str, Any] = {cost: costs[row.path, cost] for cost in _COSTS if (row.path, cost) in costs}
    for part, names in _PARTS.items():
        old = getattr(row, part)
        new = {name: costs[row.path, f"{part} {name}"] for name in names if (row.path, f"{part} {name}") in costs}
        if new:
            is_struct = isinstance(old, msgspec.Struct)
            changed[part] = msgspec.structs.replace(old, **new) if is_struct else old._replace(**new)
    return msgspec.structs.replace(row, **changed) if changed else row


def closed_form(
    tokens: int, own: Ledger, ledger_at: LedgerAt, *, slow: bool = False,
    is_enough: Callable[[], bool] = lambda: False, images: bool = False,
) -> Ledger:  # fmt: skip
    """`own`, the ledger at N = `tokens`, with the closed form of its costs, and an order of every row that has one.

    Where a run is `slow`, smaller N come first. Further periods are looked for until it `is_enough`.
    Of `images` N are the pixels of square ones; the forms are in P = H·W, and rows have no order.
    """
    counts = CountedSizes(tokens, lambda size: own if size == tokens else ledger_at(size), math.inf, slow=math.inf)
    side = math.isqrt(tokens)
    if images:
        grains = (grain for grain in _GRAINS if side % grain == 0 and counts.runs((side + grain) ** 2))
        counts.axis = PossibleSizes(next(grains, side), root=2)
    elif side * side == tokens and not counts.runs(tokens + 1) and counts.runs((side + 1) ** 2):
        counts.axis = PossibleSizes(root=2)  # of grids near to a square some N run, and costs are those of the sides
    fit = _best(counts, slow=slow, is_enough=is_enough, images=images)
    form = msgspec.structs.replace(_written(counts, fit, "P" if images else "N"), growth=_growth(counts))
    if not images:
        rows = tuple(msgspec.structs.replace(row, order=_order(row, fit.forms)) for row in own.rows)
        own = msgspec.structs.replace(own, rows=rows)
    return msgspec.structs.replace(own, closed_form=form)


def _best(counts: CountedSizes, *, slow: bool, is_enough: Callable[[], bool], images: bool) -> PolynomialFit:
    """The first fit of all MACs; else one of the total; else one of some rows."""
    best: PolynomialFit | None = None
    for fit in _all_fits(counts, slow=slow, images=images):
        if not fit.unfit:
            return fit
        if best is None or (_MACS in best.unfit and _MACS not in fit.unfit):
            best = fit
        if is_enough():
            break
    return best or PolynomialFit({}, (counts.own,), (_MACS,))


def _all_fits(counts: CountedSizes, *, slow: bool, images: bool) -> Iterator[PolynomialFit]:
    """Fits at all sizes, then at those of the same remainder of a period."""
    unfit: tuple[Series, ...] = ()
    for fit in counts.fits(slow=slow):
        yield fit
        unfit = fit.unfit
    if counts.axis.grain == counts.own or counts.on_numbers:
        return
    for period in _periods(counts, unfit, images=images):
        found = counts.fit(counts.running(_alike(counts, period, _POINTS - 1), _POINTS - 1), period)
        if found is not None:
            least = _least_period(counts, found)
            if _holds_far_off(counts, least):
                yield least


def _periods(counts: CountedSizes, unfit: Sequence[Series], *, images: bool) -> list[int]:
    """Periods to try, each for all its divisors; the likeliest first.

    Windows are among the numbers in shapes of the operations that step.
    """
    paths = {path for path, _ in unfit}
    ran = [row.ran for row in counts.counted(counts.own).rows if row.path in paths and row.ran]
    texts = (f"{one.input_shapes} {one.output_shapes}" for one in ran)
    numbers = [n for n, _ in Counter(int(n) for text in texts for n in re.findall(r"\d+", text)).most_common() if n > 1]
    if counts.axis.squares:
        windows = [math.isqrt(n) for n in numbers if math.isqrt(n) ** 2 == n][:_MOST_WINDOWS]
        usual = (*_IMAGE_PERIODS, *_PERIODS) if images else _PERIODS
        return list(dict.fromkeys((*usual, *windows, *(8 * side for side in windows))))
    windows = [n for n in numbers if math.lcm(*_PERIODS) % n][:_MOST_WINDOWS]
    return list(dict.fromkeys((*_PERIODS, *windows)))


def _alike(counts: CountedSizes, period: int, points: int) -> list[int]:
    """The next sizes with the same remainder, as far as shapes stay small."""
    own, most = counts.axis.step_below(counts.own), max(_MOST_TOKENS, _MOST_TIMES * counts.own)
    sizes = (counts.axis.value(own + place * period) for place in range(1, points + 1))
    return [size for size in sizes if size <= most]


def _least_period(counts: CountedSizes, fit: PolynomialFit) -> PolynomialFit:
    """`fit` with the least period at which the polynomials hold."""
    if fit.unfit:
        return fit
    period, factor, rest = fit.period, 2, fit.period
    while rest > 1:  # the prime factors, repeated ones too
        if rest % factor:
            factor += 1
            continue
        rest //= factor
        sizes = _alike(counts, period // factor, 2)
        if all(value(fit.forms[_MACS], size) == _macs(counts, size) for size in sizes):
            period //= factor
    return fit._replace(period=period)


def _holds_far_off(counts: CountedSizes, fit: PolynomialFit) -> bool:
    """Do the MACs meet the polynomial many periods on, where steps of another period would not?"""
    total = fit.forms.get(_MACS)
    far = (size for places in _FAR for size in _alike(counts, fit.period, places)[places - 1 :])
    size = next(filter(counts.runs, far), None)
    return total is not None and (size is None or value(total, size) == _macs(counts, size))


def _macs(counts: CountedSizes, size: int) -> int | None:
    return counts.costs(size)[_MACS] if counts.runs(size) else None


def _written(counts: CountedSizes, fit: PolynomialFit, letter: Literal["N", "P"]) -> ClosedForm:
    sizes, axis = tuple(sorted(fit.sizes)), counts.axis
    known: dict[str, Any] = {"N": counts.own, "sizes": sizes, "letter": letter}
    if _MACS not in fit.forms:
        at = ", ".join(f"{size:,}" for size in sizes)
        why = f"no polynomial in N of a small degree fits its MACs (counted at N = {at}, and with periods)"
        if len(sizes) == 1:
            why = f"it runs at too few other N near {counts.own:,}"
        return ClosedForm(refused=why.replace("N", letter), **known)
    texts = {series: written(form).replace("N", letter) for series, form in fit.forms.items()}
    # of points: a period of 3 multiples of 4 is one of 12
    own, period = axis.step_below(counts.own), fit.period
    others: dict[int, str] = {}
    for remainder in range(period if period <= _EVERY_REMAINDER else 0):
        first = own + (remainder - own) % period
        places = range(_POINTS) if first != own else ()
        alike = counts.running((axis.value(first + place * period) for place in places), _POINTS)
        form = counts.polynomial([(size, counts.costs(size)[_MACS]) for size in alike])
        if form is not None:
            others[remainder * axis.grain] = written(form).replace("N", letter)
    return ClosedForm(
        macs=texts[_MACS],
        flops=texts.get(("", "flops")),
        rows={
            path: text
            for (path, cost), text in texts.items()
            if path and cost == "macs" and fit.forms[path, cost].terms
        },
        cache=texts.get((_CACHE, "bytes")),
        period=period * axis.grain if period > 1 else 1,
        remainder=own % period * axis.grain,
        counted_in="N" if not axis.squares else "√N" if letter == "N" else "√P",
        others=others,
        **known,
    )


def _order(row: Operation, forms: Forms) -> str | None:
    """The leading term of a row's cost; None where no polynomial fits it."""
    decides = ("macs",) if row.macs else ("flops", "comparisons") if row.flops or row.comparisons else ("params",)
    found = {cost: forms.get((row.path, cost)) for cost in decides}
    if None in found.values() or not any(getattr(row, cost) for cost in decides):
        return None
    in_n = {cost: with_form(getattr(row, cost), form) for cost, form in found.items() if form is not None}
    return order(msgspec.structs.replace(row, **in_n), leading_term)


def _growth(counts: CountedSizes) -> dict[str, float | None]:
    """Exponents between this N and twice as many tokens; half as many where that can't be."""
    own = counts.counted(counts.own)
    for factor in (2.0, 4.0, 0.5, 0.25):  # twice on a line, four times on a grid
        size = int(counts.own * factor)
        if size == counts.own * factor and counts.runs(size):
            other = counts.counted(size)
            macs = growth_exponent(own.total("macs") or 0, other.total("macs") or 0, factor)
            held = [one.attention_memory()["all_layers"] for one in (own, other)]
            return {"macs": macs, "attention_bytes": growth_exponent(held[0], held[1], factor), "factor": factor}
    return {"macs": None, "attention_bytes": None, "factor": None}
