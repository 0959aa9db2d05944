"""Keys and values of a max-pooled feature map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import msgspec

from xfcost.formulas.conv_kernel import Kernel, kernel_of, pooling, unread_note
from xfcost.formulas.raster import numbers
from xfcost.formulas.rows import letter_power
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class PooledKeys(msgspec.Struct, frozen=True):
    """Disjoint pools; an incomplete pool at the far border is left out."""

    kernel: Kernel

    @classmethod
    def on(cls, grid: Grid, pool: int | list[int]) -> PooledKeys:
        """Pools of `pool` positions along every axis of `grid`, or along each.

        Raises:
            ComponentError: a list has another length than the grid has axes.
        """
        try:
            return cls(kernel_of(grid, pool, pool, None))
        except ComponentError as error:
            raise ComponentError("pool", error.message) from None

    @property
    def axes(self) -> int:
        """Axes that are pooled."""
        return sum(side != 1 for side in self.kernel.sides)

    @property
    def pools(self) -> bool:
        """Is anything pooled?"""
        return self.axes > 0

    @property
    def reads(self) -> str:
        """Keys read per query, in letters."""
        return f"N/{letter_power('W', self.axes)}" if self.pools else "N"

    def check(self, grid: Grid) -> None:
        """Raise ComponentError where the pools do not fit `grid`."""
        if not self.pools:
            return
        try:
            self.kernel.check(grid)
        except ComponentError as error:
            raise ComponentError("pool", error.message) from None

    def count(self, grid: Grid) -> Number:
        """M, the number of keys."""
        return prod(self.kernel.out(grid.sides)) if self.pools else grid.total

    def covers(self, grid: Grid) -> Number:
        """Number of tokens in a pool."""
        return self.count(grid) * prod(self.kernel.sides) if self.pools else grid.total

    def covered(self, grid: Grid) -> Sequence[int]:
        """The tokens in a pool."""
        if not self.pools:
            return range(grid.total)
        pooled_sides = (out * side for out, side in zip(self.kernel.out(grid.sides), self.kernel.sides, strict=True))
        return numbers(map(range, pooled_sides), grid.sides)

    def row(self, path: str, title: str, grid: Grid, width: Number) -> Operation:
        """The max-pool of `width` channels: local, content-dependent mixing."""
        read = {"mixing": "local", "reads": letter_power("W", self.axes), "reads_tokens": prod(self.kernel.sides)}
        row = pooling(path, "max", self.kernel, self.count(grid) * width, grid.total * width)
        return msgspec.structs.replace(row, title=title, content_dependent=True, **read)

    def notes(self, grid: Grid) -> Iterator[str]:
        """A note on tokens outside the pools."""
        if self.pools:
            yield from unread_note(self.kernel, grid)
