"""The closed form of a module in N: counted at several N, polynomials through the counts, checked at further N."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from time import process_time
from typing import Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.interpolation import CHECKS, leading_term, through, value, with_form, written
from xfcost.formulas.orders import order
from xfcost.formulas.polynomial import Polynomial
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.join import growth_exponent
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.ledger.ran import ClosedForm

LedgerAt = Callable[[int], Ledger]
"""N -> the ledger of the module there."""
Series = tuple[str, str]
"""(path, quantity); the path is empty of totals."""
Forms = dict[Series, Polynomial]

COSTS: Final = ("macs", "flops", "comparisons", "params")
_POINTS: Final = 5  # determine a degree of 2, and check it
_MORE_POINTS: Final = 7  # determine a degree of 4
_FAR: Final = (101, 37, 7)  # periods
_EVERY_REMAINDER: Final = 8  # up to this period


class Fit(NamedTuple):
    """The polynomials that fit at some N."""

    forms: Forms
    sizes: tuple[int, ...]
    unfit: tuple[Series, ...]
    """The MACs, of rows and in all, that no polynomial fits."""
    period: int = 1


class Counts:
    """The ledgers of a module at every N that was asked for, counted once."""

    def __init__(self, tokens: int, own: Ledger, ledger_at: LedgerAt, *, slow: bool, patience: float | None) -> None:
        self.tokens, self.own, self.slow = tokens, own, slow
        self._ends = None if patience is None else process_time() + patience
        self._ledger_at = ledger_at
        self._known: dict[int, tuple[Ledger | None, dict[Series, int] | None]] = {tokens: (own, _series(own))}

    def both(self, size: int) -> tuple[Ledger | None, dict[Series, int] | None]:
        """The ledger there, and every cost; None where the module does not run."""
        if size not in self._known:
            try:
                ledger = self._ledger_at(size)
                self._known[size] = ledger, _series(ledger)
            except XfcostError:
                self._known[size] = None, None
        return self._known[size]

    def at(self, size: int) -> dict[Series, int]:
        """Every cost there; none where the module does not run."""
        return self.both(size)[1] or {}

    def running(self, sizes: Sequence[int], most: int) -> list[int]:
        """The first `most` of `sizes` at which the module runs."""
        return list(islice((size for size in sizes if self.at(size)), most))

    @property
    def late(self) -> bool:
        return self._ends is not None and process_time() > self._ends


def closed_form(
    tokens: int, own: Ledger, ledger_at: LedgerAt, *, slow: bool = False, patience: float | None = None,
    images: bool = False,
) -> Ledger:  # fmt: skip
    """`own`, the ledger at N = `tokens`, with the closed form of its costs, and an order of every row that has one.

    Where a run is `slow`, smaller N come first. Further periods are looked for as long as `patience` lasts, in seconds.
    Of `images` N are the pixels of square ones; the forms are in P = H·W, and rows have no order.
    """
    counts = Counts(tokens, own, ledger_at, slow=slow, patience=patience)
    axis = (image_axis if images else axis_of)(tokens, lambda size: bool(counts.at(size)))
    fit = _best(counts, axis)
    form = _filled(counts, axis, fit, lambda text: text.replace("N", "P") if images else text)
    form = msgspec.structs.replace(form, growth=_growth(counts))
    if images:
        return with_form_of_module(own, msgspec.structs.replace(form, letter="P", counted_in="√P"))
    rows = tuple(msgspec.structs.replace(row, order=_order(row, fit.forms)) for row in own.rows)
    return with_form_of_module(msgspec.structs.replace(own, rows=rows), form)


def with_form_of_module(ledger: Ledger, form: ClosedForm) -> Ledger:
    """The ledger of a module with its closed form."""
    if ledger.module is None:
        raise ValueError(f"{ledger.metadata.name} is no module's ledger")
    return msgspec.structs.replace(ledger, module=msgspec.structs.replace(ledger.module, closed_form=form))


def _filled(counts: Counts, axis: Axis, fit: Fit, named: Callable[[str], str]) -> ClosedForm:
    sizes = tuple(sorted(fit.sizes))
    if ("", "macs") not in fit.forms:
        return ClosedForm(N=counts.tokens, sizes=sizes, refused=named(_why(counts, axis, fit)))
    texts = {series: named(written(form)) for series, form in fit.forms.items()}
    others = _others(counts, axis, fit) if fit.period <= _EVERY_REMAINDER else ()
    return ClosedForm(
        N=counts.tokens,
        sizes=sizes,
        macs=texts["", "macs"],
        flops=texts.get(("", "flops")),
        rows={
            path: text
            for (path, cost), text in texts.items()
            if path and cost == "macs" and fit.forms[path, cost].terms
        },
        period=fit.period,
        remainder=axis.own % fit.period,
        counted_in="√N" if axis.kind == "squares" else "N",
        others={remainder: named(text) for remainder, text in others},
    )


def _series(ledger: Ledger) -> dict[Series, int]:
    """Every cost of every row's block, and the totals; each with what makes the row the same at another N."""
    found = {("", cost): ledger.total(cost) or 0 for cost in COSTS}
    return found | {(row.path, cost): getattr(row, cost) for row in ledger.rows for cost in COSTS}


def _best(counts: Counts, axis: Axis) -> Fit:
    """The first fit of all MACs; else one of the total; else one of some rows."""
    best: Fit | None = None
    for fit in _fits(counts, axis):
        if not fit.unfit:
            return fit
        if best is None or (("", "macs") in best.unfit and ("", "macs") not in fit.unfit):
            best = fit
        if counts.late:
            break
    return best or Fit({}, (counts.tokens,), (("", "macs"),))


def _fits(counts: Counts, axis: Axis) -> Iterator[Fit]:
    """Fits at larger N, at smaller ones, and at N of the same remainder of a period."""
    on_numbers = counts.own.module is not None and counts.own.module.tensors == "real"
    sides = [axis.smaller()] if on_numbers else [axis.larger(), axis.smaller()][:: -1 if counts.slow else 1]
    steps: tuple[Series, ...] = ()
    for sizes in sides:
        for most in (_POINTS, _MORE_POINTS):
            fit = _fit(counts, axis, counts.running(sizes, most - 1))
            if fit is not None:
                yield fit
                steps = fit.unfit
    if axis.kind == "multiples" or on_numbers:
        return
    for period in axis.periods(_numbers(counts.own, steps)):
        fit = _fit(counts, axis, counts.running(axis.alike(period, _POINTS - 1), _POINTS - 1))
        if fit is not None:
            least = _least_period(counts, axis, fit._replace(period=period))
            if _holds_far_off(counts, axis, least):
                yield least


def _fit(counts: Counts, axis: Axis, sizes: Sequence[int]) -> Fit | None:
    """Polynomials in N, or in the side of a grid, through the counts at the own N and `sizes`; None with too few."""
    if len(sizes) < CHECKS:
        return None
    everywhere = {size: counts.at(size) for size in (counts.tokens, *sizes)}
    own, forms = counts.at(counts.tokens), Forms()
    for series in own:
        points = [(size, costs[series]) for size, costs in everywhere.items() if series in costs]
        form = through(points) or (through(points, 2) if axis.kind == "squares" else None)
        if form is not None:
            forms[series] = form
    unfit = tuple(one for one, number in own.items() if one[1] == "macs" and number and one not in forms)
    return Fit(forms, tuple(everywhere), unfit)


def _numbers(ledger: Ledger, unfit: Sequence[Series]) -> list[int]:
    """The numbers in shapes of the operations that step, the most frequent first: windows are among them."""
    paths = {path for path, _ in unfit}
    texts = [f"{row.ran.input_shapes} {row.ran.output_shapes}" for row in ledger.rows if row.path in paths and row.ran]
    numbers = Counter(int(number) for text in texts for number in re.findall(r"\d+", text))
    return [number for number, _ in numbers.most_common()]


def _least_period(counts: Counts, axis: Axis, fit: Fit) -> Fit:
    """`fit` with the least period at which the polynomials hold."""
    if fit.unfit:
        return fit
    period, total = fit.period, fit.forms["", "macs"]
    for prime in _primes(period):
        if all(_meets(counts, total, size) for size in axis.alike(period // prime, 2)):
            period //= prime
    return fit._replace(period=period)


def _holds_far_off(counts: Counts, axis: Axis, fit: Fit) -> bool:
    """Do the MACs meet the polynomial many periods on, where steps of another period would not?"""
    total = fit.forms.get(("", "macs"))
    far = [size for places in _FAR for size in axis.alike(fit.period, places)[places - 1 :]]
    size = next((size for size in far if counts.at(size)), None)
    return total is not None and (size is None or _meets(counts, total, size))


def _meets(counts: Counts, form: Polynomial, size: int) -> bool:
    return value(form, size) == counts.at(size).get(("", "macs"))


def _primes(number: int) -> Iterator[int]:
    """The prime factors, repeated ones too."""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1


def _others(counts: Counts, axis: Axis, fit: Fit) -> Iterator[tuple[int, str]]:
    """The MACs at every other remainder of a short period."""
    for remainder in range(fit.period):
        if remainder == axis.own % fit.period:
            continue
        sizes = counts.running(axis.other(fit.period, remainder, _POINTS), _POINTS)
        form = through([(size, counts.at(size)["", "macs"]) for size in sizes]) if sizes else None
        if form is not None:
            yield remainder, written(form)


def _order(row: Operation, forms: Mapping[Series, Polynomial]) -> str | None:
    """The leading term of a row's cost; None where no polynomial fits it."""
    decides = ("macs",) if row.macs else ("flops", "comparisons") if row.flops or row.comparisons else ("params",)
    found = {cost: forms.get((row.path, cost)) for cost in decides}
    if None in found.values() or not any(getattr(row, cost) for cost in decides):
        return None
    in_n = {cost: with_form(getattr(row, cost), form) for cost, form in found.items() if form is not None}
    return order(msgspec.structs.replace(row, **in_n), leading_term)


def _growth(counts: Counts) -> dict[str, float | None]:
    """Exponents between this N and twice as many tokens; half as many where that can't be."""
    for factor in (2.0, 4.0, 0.5, 0.25):  # twice on a line, four times on a grid
        size = int(counts.tokens * factor)
        other = counts.both(size)[0] if size == counts.tokens * factor else None
        if other is not None:
            macs, held = (
                (each(counts.own), each(other))
                for each in (lambda one: one.total("macs") or 0, lambda one: one.attention_memory()["all_layers"])
            )
            exponents = {"macs": growth_exponent(*macs, factor), "attention_bytes": growth_exponent(*held, factor)}
            return exponents | {"factor": factor}
    return {"macs": None, "attention_bytes": None, "factor": None}


def _why(counts: Counts, axis: Axis, fit: Fit) -> str:
    sizes = ", ".join(f"{size:,}" for size in sorted(fit.sizes))
    if len(fit.sizes) == 1:
        return f"it runs at too few N near {counts.tokens:,} ({'squares and ' if axis.kind != 'lengths' else ''}others)"
    return f"no polynomial in N of a small degree fits its MACs (counted at N = {sizes}, and with periods)"


Kind = Literal["lengths", "squares", "multiples"]

# Points from the own one, in places: twice as far, the next one, and others of mixed remainders.
_LARGER: Final = ((2, 0), (1, 1), (3, 1), (5, 3), (2, 3), (1, 2), (4, 0), (3, 0), (5, 0), (6, 0))
_SMALLER: Final = ((1, 2, 0), (1, 1, -1), (3, 4, 0), (1, 2, 1), (1, 1, -2), (2, 3, 0), (1, 3, 0), (7, 8, 0))

# One fit each finds every period that divides one of these.
_PERIODS: Final = (24, 840)
# Of the sides of images: patches and strides of convolutions.
_OF_IMAGES: Final = (32, 96, 28)
_MOST_WINDOWS: Final = 4
# The largest N tried, and the same in terms of the own N: memory of masks and tables that are made as a model runs.
_MOST_TOKENS: Final = 2**14
_MOST_TIMES: Final = 32


class Axis(NamedTuple):
    """The N that a module can have: every one, squares, or multiples of its own."""

    kind: Kind
    tokens: int
    grain: int = 1
    """Of squares: what their sides are multiples of."""
    images: bool = False
    """Are they images, of so many pixels?"""

    @property
    def own(self) -> int:
        """The point of the own N."""
        return {"lengths": self.tokens, "squares": math.isqrt(self.tokens) // self.grain, "multiples": 1}[self.kind]

    def size(self, point: int) -> int:
        return {"lengths": point, "squares": (point * self.grain) ** 2, "multiples": point * self.tokens}[self.kind]

    def larger(self) -> list[int]:
        return self._sizes(self.own * times + more for times, more in _LARGER)

    def smaller(self) -> list[int]:
        """Smaller N, which a limit of the model allows, or a window that is not full yet."""
        return self._sizes(self.own * times // parts + more for times, parts, more in _SMALLER)

    def periods(self, numbers: Sequence[int]) -> list[int]:
        """Periods to try, each for all its divisors; `numbers` are those in shapes, the likeliest first."""
        if self.kind == "squares":
            windows = [math.isqrt(number) for number in numbers if 1 < number == math.isqrt(number) ** 2][
                :_MOST_WINDOWS
            ]
            usual = (*_OF_IMAGES, *_PERIODS) if self.images else _PERIODS
            return list(dict.fromkeys((*usual, *windows, *(8 * side for side in windows))))
        known = math.lcm(*_PERIODS)
        windows = [number for number in numbers if number > 1 and known % number]
        return list(dict.fromkeys((*_PERIODS, *windows[:_MOST_WINDOWS])))

    def alike(self, period: int, points: int) -> list[int]:
        """The next N with the same remainder, as far as shapes stay small."""
        most = max(_MOST_TOKENS, _MOST_TIMES * self.tokens)
        sizes = (self.size(self.own + place * period) for place in range(1, points + 1))
        return [size for size in sizes if size <= most]

    def other(self, period: int, remainder: int, points: int) -> list[int]:
        """N of another remainder, from the own one on."""
        first = self.own + (remainder - self.own) % period
        return [self.size(first + place * period) for place in range(points)]

    def _sizes(self, points: Iterator[int]) -> list[int]:
        return [self.size(point) for point in dict.fromkeys(points) if point > 0 and point != self.own]


# What the sides of images are multiples of: patches, and strides of convolutions; the finest first.
_GRAINS: Final = (1, 2, 4, 8, 16, 32, 7, 14, 28)


def image_axis(pixels: int, runs: Callable[[int], bool]) -> Axis:
    """The square images near one of so many `pixels` at which the module `runs`."""
    side = math.isqrt(pixels)
    grains = (grain for grain in _GRAINS if side % grain == 0 and runs((side + grain) ** 2))
    return Axis("squares", pixels, next(grains, side), images=True)


def axis_of(tokens: int, runs: Callable[[int], bool]) -> Axis:
    """The N near `tokens` at which the module `runs`."""
    if runs(tokens + 1):
        return Axis("lengths", tokens)
    side = math.isqrt(tokens)
    if side * side == tokens and runs((side + 1) ** 2):
        return Axis("squares", tokens)
    return Axis("lengths", tokens) if tokens > 1 and runs(tokens - 1) else Axis("multiples", tokens)
