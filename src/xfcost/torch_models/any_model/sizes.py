"""The ledgers of a module at several sizes, each counted once; and the sizes at which it can run.

A size is N, the pixels of a square image, or the side of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from xfcost.formulas.interpolation import Points, through
from xfcost.formulas.polynomial import Polynomial
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger

LedgerAt = Callable[[int], Ledger]
"""A size -> the ledger of the module there; an XfcostError where it does not run."""


class Counts:
    """The ledgers of a module, by their sizes."""

    def __init__(self, ledger_at: LedgerAt, known: dict[int, Ledger] | None = None) -> None:
        self._ledger_at = ledger_at
        self.known: dict[int, Ledger | XfcostError] = {**(known or {})}

    def ledger(self, size: int) -> Ledger:
        """The ledger there.

        Raises:
            XfcostError: the module does not run there.
        """
        if size not in self.known:
            try:
                self.known[size] = self._ledger_at(size)
            except XfcostError as error:
                self.known[size] = error
        found = self.known[size]
        if isinstance(found, XfcostError):
            raise found
        return found

    def runs(self, size: int) -> bool:
        """Does the module run there?"""
        try:
            self.ledger(size)
        except XfcostError:
            return False
        return True

    def running(self, sizes: Iterable[int], most: int) -> list[int]:
        """The first `most` of `sizes` at which the module runs."""
        found: list[int] = []
        for size in sizes:
            if len(found) == most:
                break
            found += [size] if self.runs(size) else []
        return found


class Axis(NamedTuple):
    """The sizes that a module can have: multiples of a number, or their squares."""

    own: int
    """The size from which others are looked for."""
    grain: int = 1
    squares: bool = False

    def size(self, point: int) -> int:
        """The size of point 1, 2, 3, …."""
        return (point * self.grain) ** 2 if self.squares else point * self.grain

    def point(self, size: int) -> int:
        """The point of a size, or the one below."""
        return (math.isqrt(size) if self.squares else size) // self.grain

    def has(self, size: int) -> bool:
        """Is it one of these sizes?"""
        return self.size(self.point(size)) == size

    def near(self, places: Iterable[tuple[int, int, int]]) -> list[int]:
        """Other sizes: each `times` / `parts` of the own point, and some points `more`."""
        point = self.point(self.own)
        points = dict.fromkeys(point * times // parts + more for times, parts, more in places)
        return [size for one in points if one > 0 and (size := self.size(one)) != self.own]

    def form(self, points: Points) -> Polynomial | None:
        """The polynomial through all points: in the size, or in the side of a square."""
        form = through(points)
        return through(points, 2) if form is None and self.squares else form


def axis_of(own: int, runs: Callable[[int], bool], grains: Sequence[int]) -> Axis:
    """Every size near `own`, if the module `runs` beside it; squares; or multiples of the first of `grains` that runs.

    With none of these it is the own size and its multiples.
    """
    if runs(own + 1) or (own > 1 and runs(own - 1)):
        return Axis(own)
    side = math.isqrt(own)
    if side * side == own and runs((side + 1) ** 2):
        return Axis(own, squares=True)
    return Axis(own, next((one for one in grains if runs(own + one) or runs(own - one)), own))
