"""The closed form of a module in N: counted at several N, polynomials through the counts, checked at further N."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import process_time
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.formulas.interpolation import CHECKS, leading_term, through, value, with_form, written
from xfcost.formulas.orders import order
from xfcost.formulas.polynomial import Polynomial
from xfcost.ledger.closed_form import ClosedForm
from xfcost.ledger.join import growth_exponent
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.torch_models.any_model.sizes import Axis, Counts, LedgerAt, axis_of

Series = tuple[str, str]
"""(path, quantity); the path is empty of totals."""
Forms = dict[Series, Polynomial]

COSTS: Final = ("macs", "flops", "comparisons", "params")
_POINTS: Final = 5  # determine a degree of 2, and check it
_MORE_POINTS: Final = 7  # determine a degree of 4
_FAR: Final = (101, 37, 7)  # periods
_EVERY_REMAINDER: Final = 8  # up to this period

# Points from the own one, in places: twice as far, the next one, and others of mixed remainders.
_LARGER: Final = tuple(
    (n, 1, more) for n, more in ((2, 0), (1, 1), (3, 1), (5, 3), (2, 3), (1, 2), (4, 0), (3, 0), (5, 0), (6, 0))
)
_SMALLER: Final = ((1, 2, 0), (1, 1, -1), (3, 4, 0), (1, 2, 1), (1, 1, -2), (2, 3, 0), (1, 3, 0), (7, 8, 0))

# One fit each finds every period that divides one of these.
_PERIODS: Final = (24, 840)
# Of the sides of images: patches and strides of convolutions.
_OF_IMAGES: Final = (32, 96, 28)
_MOST_WINDOWS: Final = 4
# The largest N tried, and the same in terms of the own N: memory of masks and tables that are made as a model runs.
_MOST_TOKENS: Final = 2**14
_MOST_TIMES: Final = 32
# What the sides of images are multiples of: patches, and strides of convolutions; the finest first.
_GRAINS: Final = (1, 2, 4, 8, 16, 32, 7, 14, 28)


class Fit(NamedTuple):
    """The polynomials that fit at some N."""

    forms: Forms
    sizes: tuple[int, ...]
    unfit: tuple[Series, ...]
    """The MACs, of rows and in all, that no polynomial fits."""
    period: int = 1


class _Counts(Counts):
    """What is known of a module while its closed form is looked for."""

    def __init__(self, own: Ledger, tokens: int, ledger_at: LedgerAt, patience: float | None, *, images: bool) -> None:
        super().__init__(ledger_at, {tokens: own})
        self.own, self._ends = own, None if patience is None else process_time() + patience
        self.on_numbers = own.module is not None and own.module.tensors == "real"
        self.images, self.axis = images, (image_axis(tokens, self.runs) if images else axis_of(tokens, self.runs, ()))

    @property
    def late(self) -> bool:
        """Has it taken too long to look further?"""
        return self._ends is not None and process_time() > self._ends

    def meets(self, form: Polynomial, size: int) -> bool:
        """Does the module run there, with so many MACs?"""
        return self.runs(size) and value(form, size) == self.ledger(size).total("macs")


def closed_form(
    tokens: int,
    own: Ledger,
    ledger_at: LedgerAt,
    *,
    slow: bool = False,
    patience: float | None = None,
    images: bool = False,
) -> Ledger:
    """`own`, the ledger at N = `tokens`, with the closed form of its costs, and an order of every row that has one.

    Where a run is `slow`, smaller N come first. Further periods are looked for as long as `patience` lasts, in seconds.
    Of `images` N are the pixels of square ones; the forms are in P = H·W, and rows have no order.
    """
    counts = _Counts(own, tokens, ledger_at, patience, images=images)
    fit = _best(counts, slow=slow)
    form = ClosedForm(N=tokens, sizes=tuple(sorted(fit.sizes)), growth=_growth(counts))
    if ("", "macs") in fit.forms:
        texts = {series: written(one) for series, one in fit.forms.items() if one.terms or not series[0]}
        form = msgspec.structs.replace(
            form,
            macs=texts["", "macs"],
            flops=texts.get(("", "flops")),
            rows={path: text for (path, cost), text in texts.items() if path and cost == "macs"},
            period=fit.period,
            remainder=counts.axis.point(tokens) % fit.period,
            counted_in="√N" if counts.axis.squares else "N",
            others=dict(_others(counts, fit)) if fit.period <= _EVERY_REMAINDER else {},
        )
    else:
        form = msgspec.structs.replace(form, refused=_why(counts.axis, fit))
    if images:
        return with_form_of_module(own, _in_pixels(form))
    rows = tuple(msgspec.structs.replace(row, order=_order(row, fit.forms)) for row in own.rows)
    return with_form_of_module(msgspec.structs.replace(own, rows=rows), form)


def _in_pixels(form: ClosedForm) -> ClosedForm:
    """A form of pixels, with the letter P."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(text) for key, text in value.items()}
        return value and value.replace("N", "P")

    names = ("macs", "flops", "rows", "others", "refused")
    return msgspec.structs.replace(
        form, letter="P", counted_in="√P", **{name: renamed(getattr(form, name)) for name in names}
    )


def with_form_of_module(ledger: Ledger, form: ClosedForm) -> Ledger:
    """The ledger of a module with its closed form."""
    if ledger.module is None:
        raise ValueError(f"{ledger.metadata.name} is no module's ledger")
    return msgspec.structs.replace(ledger, module=msgspec.structs.replace(ledger.module, closed_form=form))


def _series(ledger: Ledger) -> dict[Series, int]:
    """Every cost of every row's block, and the totals; each with what makes the row the same at another N."""
    found = {("", cost): ledger.total(cost) or 0 for cost in COSTS}
    return found | {(row.path, cost): getattr(row, cost) for row in ledger.rows for cost in COSTS}


def _best(counts: _Counts, *, slow: bool) -> Fit:
    """The first fit of all MACs; else one of the total; else one of some rows."""
    best: Fit | None = None
    for fit in _fits(counts, slow=slow):
        if not fit.unfit:
            return fit
        if best is None or (("", "macs") in best.unfit and ("", "macs") not in fit.unfit):
            best = fit
        if counts.late:
            break
    return best or Fit({}, (counts.axis.own,), (("", "macs"),))


def _fits(counts: _Counts, *, slow: bool) -> Iterator[Fit]:
    """Fits at larger N, at smaller ones, and at N of the same remainder of a period."""
    axis = counts.axis
    sides = [_SMALLER] if counts.on_numbers else [_SMALLER, _LARGER] if slow else [_LARGER, _SMALLER]
    steps: tuple[Series, ...] = ()
    for places in sides:
        for most in (_POINTS, _MORE_POINTS):
            fit = _fit(counts, counts.running(axis.near(places), most - 1))
            if fit is not None:
                yield fit
                steps = fit.unfit
    if counts.on_numbers or (axis.grain > 1 and not axis.squares):
        return
    for period in _periods(counts, _numbers(counts.own, steps)):
        fit = _fit(counts, counts.running(_alike(axis, period, _POINTS - 1), _POINTS - 1))
        if fit is not None:
            least = _least_period(counts, fit._replace(period=period))
            if _holds_far_off(counts, least):
                yield least


def _fit(counts: _Counts, sizes: Sequence[int]) -> Fit | None:
    """Polynomials in N, or in the side of a grid, through the counts at the own N and `sizes`; None with too few."""
    if len(sizes) < CHECKS:
        return None
    own = _series(counts.own)
    everywhere = {size: _series(counts.ledger(size)) for size in (counts.axis.own, *sizes)}
    found = (
        (series, counts.axis.form([(size, costs[series]) for size, costs in everywhere.items() if series in costs]))
        for series in own
    )
    forms = {series: form for series, form in found if form is not None}
    unfit = tuple(one for one, number in own.items() if one[1] == "macs" and number and one not in forms)
    return Fit(forms, tuple(everywhere), unfit)


def _numbers(ledger: Ledger, unfit: Sequence[Series]) -> list[int]:
    """The numbers in shapes of the operations that step, the most frequent first: windows are among them."""
    paths = {path for path, _ in unfit}
    texts = [f"{row.ran.input_shapes} {row.ran.output_shapes}" for row in ledger.rows if row.path in paths and row.ran]
    numbers = Counter(int(number) for text in texts for number in re.findall(r"\d+", text))
    return [number for number, _ in numbers.most_common()]


def _periods(counts: _Counts, numbers: Sequence[int]) -> list[int]:
    """Periods to try, each for all its divisors; `numbers` are those in shapes, the likeliest first."""
    if not counts.axis.squares:
        known = math.lcm(*_PERIODS)
        windows = [number for number in numbers if number > 1 and known % number]
        return list(dict.fromkeys((*_PERIODS, *windows[:_MOST_WINDOWS])))
    usual = (*_OF_IMAGES, *_PERIODS) if counts.images else _PERIODS
    sides = [math.isqrt(number) for number in numbers if 1 < number == math.isqrt(number) ** 2][:_MOST_WINDOWS]
    return list(dict.fromkeys((*usual, *sides, *(8 * side for side in sides))))


def _alike(axis: Axis, period: int, points: int) -> list[int]:
    """The next N with the same remainder, as far as shapes stay small."""
    most, own = max(_MOST_TOKENS, _MOST_TIMES * axis.own), axis.point(axis.own)
    sizes = (axis.size(own + place * period) for place in range(1, points + 1))
    return [size for size in sizes if size <= most]


def _least_period(counts: _Counts, fit: Fit) -> Fit:
    """`fit` with the least period at which the polynomials hold."""
    if fit.unfit:
        return fit
    period, total = fit.period, fit.forms["", "macs"]
    for prime in _primes(period):
        shorter = period // prime
        if all(counts.meets(total, size) for size in _alike(counts.axis, shorter, 2)):
            period = shorter
    return fit._replace(period=period)


def _holds_far_off(counts: _Counts, fit: Fit) -> bool:
    """Do the MACs meet the polynomial many periods on, where steps of another period would not?"""
    total = fit.forms.get(("", "macs"))
    far = (size for places in _FAR for size in _alike(counts.axis, fit.period, places)[places - 1 :])
    size = next(filter(counts.runs, far), None)
    return total is not None and (size is None or counts.meets(total, size))


def _primes(number: int) -> Iterator[int]:
    """The prime factors, repeated ones too."""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1


def _others(counts: _Counts, fit: Fit) -> Iterator[tuple[int, str]]:
    """The MACs at every other remainder of a short period."""
    own, period = counts.axis.point(counts.axis.own), fit.period
    for remainder in range(period):
        if remainder == own % period:
            continue
        first = own + (remainder - own) % period
        sizes = (counts.axis.size(first + place * period) for place in range(_POINTS))
        points = [(size, counts.ledger(size).total("macs") or 0) for size in counts.running(sizes, _POINTS)]
        form = through(points) if points else None
        if form is not None:
            yield remainder, written(form)


def _order(row: Operation, forms: Mapping[Series, Polynomial]) -> str | None:
    """The leading term of a row's cost; None where no polynomial fits it."""
    decides = ("macs",) if row.macs else ("flops", "comparisons") if row.flops or row.comparisons else ("params",)
    found: dict[str, Any] = {}
    for cost in decides:
        form = forms.get((row.path, cost))
        if form is None:
            return None
        found[cost] = with_form(getattr(row, cost), form)
    in_n = msgspec.structs.replace(row, **found)
    return order(in_n, leading_term) if any(getattr(row, cost) for cost in decides) else None


def _growth(counts: _Counts) -> dict[str, float | None]:
    """Exponents between this N and twice as many tokens; half as many where that can't be."""
    for factor in (2.0, 4.0, 0.5, 0.25):  # twice on a line, four times on a grid
        size = int(counts.axis.own * factor)
        if size == counts.axis.own * factor and counts.runs(size):
            other = counts.ledger(size)
            macs = growth_exponent(counts.own.total("macs") or 0, other.total("macs") or 0, factor)
            held, more = (one.attention_memory()["all_layers"] for one in (counts.own, other))
            return {"macs": macs, "attention_bytes": growth_exponent(held, more, factor), "factor": factor}
    return {"macs": None, "attention_bytes": None, "factor": None}


def _why(axis: Axis, fit: Fit) -> str:
    if len(fit.sizes) == 1:
        steps = axis.squares or axis.grain > 1
        return f"it runs at too few N near {axis.own:,} ({'squares and ' if steps else ''}others)"
    sizes = ", ".join(f"{size:,}" for size in sorted(fit.sizes))
    return f"no polynomial in N of a small degree fits its MACs (counted at N = {sizes}, and with periods)"


def image_axis(pixels: int, runs: Callable[[int], bool]) -> Axis:
    """The square images near one of so many `pixels` at which the module `runs`."""
    side = math.isqrt(pixels)
    grains = (grain for grain in _GRAINS if side % grain == 0 and runs((side + grain) ** 2))
    return Axis(pixels, next(grains, side), squares=True)
