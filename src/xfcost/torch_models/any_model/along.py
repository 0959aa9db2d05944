"""The ledgers of a module along N, or along the side of a square image.

It is counted at some sizes. Where every cost of every row is a polynomial through more of these than determine it,
the ledgers between them are evaluated; elsewhere the module is counted at the size that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import count
from time import process_time
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.formulas.interpolation import through, value
from xfcost.formulas.polynomial import Polynomial
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation

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

LedgerAt = Callable[[int], Ledger]
"""N, or a side -> the ledger of the module there; an XfcostError where it does not run."""
Column = tuple[int, str]
"""(number of a row, cost)"""


class Steps(NamedTuple):
    """The sizes that a module can have: multiples of a number, or squares."""

    grain: int = 1
    squares: bool = False

    def size(self, point: int) -> int:
        """The size of point 1, 2, 3, …."""
        return point * point if self.squares else point * self.grain

    def point(self, size: int) -> int:
        """The point of a size, or the one below."""
        return math.isqrt(size) if self.squares else size // self.grain

    def has(self, size: int) -> bool:
        return self.size(self.point(size)) == size


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
        self._known: dict[int, Ledger | XfcostError] = {}

    def ledger(self, size: int) -> Ledger:
        """The ledger at a size: evaluated where polynomials hold, else counted.

        Raises:
            XfcostError: the module does not run there, or a smaller size took too long.
        """
        fitted = self._fitted
        if fitted is None or not fitted.first <= size <= fitted.last or not self.steps.has(size):
            return self._counted(size)
        known = self._known.get(size)
        return known if isinstance(known, Ledger) else _evaluated(self._counted(self.own), fitted.forms, size)

    def _counted(self, size: int) -> Ledger:
        if size not in self._known:
            if size > self.most:
                raise UsageError(f"it is counted up to {self.most:,}: a run takes too long there")
            began = self._clock()
            try:
                self._known[size] = self._ledger_at(size)
            except XfcostError as error:
                self._known[size] = error
            if self._clock() - began > _SLOW and size > 2 * self.own:
                self.most = size
        found = self._known[size]
        if isinstance(found, XfcostError):
            raise found
        return found

    def runs(self, size: int) -> bool:
        with suppress(XfcostError):
            return bool(self._counted(size))
        return False

    @cached_property
    def steps(self) -> Steps:
        """The sizes that it can have: all, squares, or multiples of a divisor of its own."""
        own, side = self.own, math.isqrt(self.own)
        if self._grain is not None:
            return Steps(self._grain)
        if self.runs(own + 1) or (own > 1 and self.runs(own - 1)):
            return Steps()
        if side * side == own and self.runs((side + 1) ** 2):
            return Steps(squares=True)
        divisors = (number for number in range(2, own) if own % number == 0)
        return Steps(next((one for one in divisors if self.runs(own + one) or self.runs(own - one)), own))

    @property
    def evaluated(self) -> bool:
        """Are ledgers evaluated from polynomials, and not each counted?"""
        return self._fitted is not None

    @cached_property
    def _fitted(self) -> _Fitted | None:
        """Polynomials through the counts near the own size, as far as they meet those at further sizes."""
        point = self.steps.point(self.own)
        places = dict.fromkeys(point * times // parts + more for times, parts, more in _NEAR)
        near = [self.own]
        for size in (self.steps.size(place) for place in places if place > 0):
            if len(near) < _MOST_NEAR and size not in near and self.runs(size):
                near.append(size)
        ledgers = {size: self._counted(size) for size in near}
        forms = _forms(ledgers, squares=self.steps.squares) if len(near) >= _ENOUGH else None
        if forms is None:
            self.most = min(self.most, self._most_counted)
            return None
        first, last = (self._reach(forms, up=up) for up in (False, True))
        return _Fitted(forms, min(first, *near), max(last, *near))

    def _reach(self, forms: dict[Column, Polynomial], *, up: bool) -> int:
        """The furthest size, upwards or downwards, up to which the module runs and meets the polynomials."""
        furthest = self.own
        for size in self._further(up=up):
            if not self.runs(size) or not _meets(self._counted(size), forms, size, self._counted(self.own)):
                break
            furthest = size
        return furthest

    def _further(self, *, up: bool) -> Iterator[int]:
        """Sizes ever further from the own one, and the last of all."""
        point, last = self.steps.point(self.own), self.steps.point(self.most) if up else 1
        for number in count(1):
            point = point * _STEP if up else point // _STEP
            if point + number % 2 >= last if up else point <= last:
                yield self.steps.size(last)
                return
            yield self.steps.size(point + number % 2)


def _forms(ledgers: dict[int, Ledger], *, squares: bool) -> dict[Column, Polynomial] | None:
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
        form = through(points) or (through(points, 2) if squares else None)
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
    """The ledger at a size, its costs those of the polynomials."""
    changed: dict[int, dict[str, Any]] = {}
    for (number, cost), form in forms.items():
        changed.setdefault(number, {})[cost] = int(value(form, size))
    rows = list(own.rows)
    for number, costs in changed.items():
        rows[number] = _with_costs(rows[number], costs)
    return msgspec.structs.replace(own, rows=tuple(rows))


def _with_costs(row: Operation, costs: dict[str, Any]) -> Operation:
    """The row with these costs: `macs`, or `matrix 0` of a field of its matrix."""
    for part in _PARTS:
        old = getattr(row, part)
        new = {cost.split()[1]: costs.pop(cost) for cost in list(costs) if cost.startswith(f"{part} ")}
        if new and old is not None:
            is_struct = isinstance(old, msgspec.Struct)
            costs[part] = msgspec.structs.replace(old, **new) if is_struct else old._replace(**new)
    return msgspec.structs.replace(row, **costs)


def patch_of(own: int, at: Callable[[int], Ledger]) -> int:
    """The least step from the side `own` at which the module runs and costs something else."""
    macs = at(own).total("macs")
    for step in _PATCHES:
        with suppress(XfcostError):
            if at(own + step).total("macs") != macs:
                return step
    return own
