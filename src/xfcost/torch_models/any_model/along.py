"""The ledgers of a module along N, or along the side of a square image.

It is counted at some sizes. Where every cost of every row is a polynomial through more of these than determine it,
the ledgers between them are evaluated; elsewhere the module is counted at the size that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from time import process_time
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.formulas.interpolation import value
from xfcost.formulas.polynomial import Polynomial
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.torch_models.any_model.sizes import Axis, Counts, LedgerAt, axis_of

_COSTS: Final = ("params", "macs", "flops", "comparisons", "moved", "attention_entries")
# Parts of a row, and their numbers that may grow.
_PARTS: Final = {"matrix": ("entries", "alive", "saved", "statistics"), "core": ("times", "queries", "keys")}
_ENOUGH: Final = 5  # determine a degree of 2, and check it
# Points near the own one, in terms of it: with others of mixed remainders, so that padding shows.
_NEAR: Final = ((1, 1, 1), (2, 1, 0), (1, 1, 2), (3, 1, 1), (5, 1, 3), (1, 2, 1), (3, 4, 0), (1, 1, -1), (2, 3, 2))
_MOST_NEAR: Final = 7
# How far apart further points are.
_STEP: Final = 8
_MOST: Final = 2**20
# A run of so many seconds is the last: larger sizes take longer.
_SLOW: Final = 1.5
# What the side of an image may be a multiple of: patches, and strides of convolutions.
_PATCHES: Final = (1, 2, 4, 7, 8, 14, 16, 28, 32)

Column = tuple[int, str]
"""(number of a row, cost)"""


class _Fitted(NamedTuple):
    """The polynomials of every row that grows, and where they hold."""

    forms: dict[Column, Polynomial]
    first: int
    last: int


class Along:
    """The ledgers of a module at any size, from one at which it runs on.

    Args:
        own: that size.
        ledger_at: counts the module.
        most: sizes beyond are not counted.
        grain: what sizes are multiples of, where that is known.
        counted: the largest size that is counted where no polynomials hold.
        clock: gives seconds of work.
    """

    def __init__(
        self, own: int, ledger_at: LedgerAt, most: int = _MOST, grain: int | None = None, counted: int = _MOST,
        clock: Callable[[], float] = process_time,
    ) -> None:  # fmt: skip
        self.own, self.most, self._most_counted, self._clock = own, most, max(own, counted), clock
        self._ledger_at, self._grain = ledger_at, grain
        self._counts = Counts(self._counted)

    def ledger(self, size: int) -> Ledger:
        """The ledger at a size: evaluated where polynomials hold, else counted.

        Raises:
            XfcostError: the module does not run there, or a smaller size took too long.
        """
        fitted = self._fitted
        within = fitted is not None and fitted.first <= size <= fitted.last and self.steps.has(size)
        if fitted is None or not within or isinstance(self._counts.known.get(size), Ledger):
            return self._counts.ledger(size)
        return _evaluated(self._counts.ledger(self.own), fitted.forms, size)

    def _counted(self, size: int) -> Ledger:
        if size > self.most:
            raise UsageError(f"it is counted up to {self.most:,}: a run takes too long there")
        began = self._clock()
        try:
            return self._ledger_at(size)
        finally:
            if self._clock() - began > _SLOW and size > 2 * self.own:
                self.most = size

    @cached_property
    def steps(self) -> Axis:
        """The sizes that it can have: all, squares, or multiples of a divisor of its own."""
        if self._grain is not None:
            return Axis(self.own, self._grain)
        return axis_of(self.own, self._counts.runs, [one for one in range(2, self.own) if self.own % one == 0])

    @property
    def evaluated(self) -> bool:
        """Are ledgers evaluated from polynomials, and not each counted?"""
        return self._fitted is not None

    @cached_property
    def _fitted(self) -> _Fitted | None:
        """Polynomials through the counts near the own size, as far as they meet those at further sizes."""
        near = [self.own, *self._counts.running(self.steps.near(_NEAR), _MOST_NEAR - 1)]
        ledgers = {size: self._counts.ledger(size) for size in near}
        forms = _forms(ledgers, self.steps) if len(near) >= _ENOUGH else None
        if forms is None:
            self.most = min(self.most, self._most_counted)
            return None
        first, last = (self._reach(forms, up=up) for up in (False, True))
        return _Fitted(forms, min(first, *near), max(last, *near))

    def _reach(self, forms: dict[Column, Polynomial], *, up: bool) -> int:
        """The furthest size, upwards or downwards, up to which the module runs and meets the polynomials."""
        furthest = self.own
        for size in self._further(up=up):
            own = self._counts.ledger(self.own)
            if not self._counts.runs(size) or not _meets(self._counts.ledger(size), forms, size, own):
                break
            furthest = size
        return furthest

    def _further(self, *, up: bool) -> Iterator[int]:
        """Sizes ever further from the own one, and the last of all."""
        point, number = self.steps.point(self.own), 0
        last = self.steps.point(self.most) if up else 1
        while True:
            point, number = point * _STEP if up else point // _STEP, number + 1
            if point + number % 2 >= last if up else point <= last:
                break
            yield self.steps.size(point + number % 2)
        yield self.steps.size(last)


def _forms(ledgers: dict[int, Ledger], axis: Axis) -> dict[Column, Polynomial] | None:
    """The polynomials through every cost that varies; None where there is none through one of them, or rows differ."""
    first_ledger, *others = ledgers.values()
    if any(_same_rows(first_ledger) != _same_rows(one) for one in others):
        return None
    columns = {size: dict(_costs(ledger.rows)) for size, ledger in ledgers.items()}
    forms: dict[Column, Polynomial] = {}
    for column, first in next(iter(columns.values())).items():
        points = [(size, costs.get(column, 0)) for size, costs in columns.items()]
        if all(number == first for _, number in points):
            continue
        form = axis.form(points)
        if form is None:
            return None
        forms[column] = form
    return forms


def _same_rows(ledger: Ledger) -> list[tuple[Any, ...]]:
    """What stays of every row."""
    return [(row.path, row.times, row.heads, row.matrix is None, row.core is None) for row in ledger.rows]


def _costs(rows: Iterable[Operation]) -> Iterator[tuple[Column, int]]:
    for number, row in enumerate(rows):
        for cost in _COSTS:
            yield (number, cost), getattr(row, cost)
        for part, names in _PARTS.items():
            found = getattr(row, part)
            for name in names:
                yield (number, f"{part} {name}"), 0 if found is None else int(getattr(found, name))


def _meets(ledger: Ledger, forms: dict[Column, Polynomial], size: int, own: Ledger) -> bool:
    """Is every cost that of the polynomials, and of the own size where there is none?"""
    if _same_rows(ledger) != _same_rows(own):
        return False
    expected = dict(_costs(own.rows)) | {column: value(form, size) for column, form in forms.items()}
    return dict(_costs(ledger.rows)) == expected


def _evaluated(own: Ledger, forms: dict[Column, Polynomial], size: int) -> Ledger:
    """The ledger at a size, its costs those of the polynomials: `macs`, or `matrix entries`, a field of a part."""
    rows = list(own.rows)
    for (number, cost), form in forms.items():
        part, _, name = cost.rpartition(" ")
        new: Any = int(value(form, size))
        if part:
            old = getattr(rows[number], part)
            new = (
                msgspec.structs.replace(old, **{name: new})
                if isinstance(old, msgspec.Struct)
                else old._replace(**{name: new})
            )
        rows[number] = msgspec.structs.replace(rows[number], **{part or name: new})
    return msgspec.structs.replace(own, rows=tuple(rows))


def patch_of(own: int, at: Callable[[int], Ledger]) -> int:
    """The least step from the side `own` at which the module runs and costs something else."""
    macs = at(own).total("macs")
    for step in _PATCHES:
        try:
            if at(own + step).total("macs") != macs:
                return step
        except XfcostError:
            continue
    return own
