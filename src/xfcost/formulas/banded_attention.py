"""Query blocks and the memory blocks that they read; pairs of runs and bands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.ledger.units import Number

Pair = tuple[Number, Number]


class Blocks(NamedTuple):
    """H×W tokens in query blocks; each reads a memory block, itself and a margin around it.

    A sequence is one row. The grid is padded to whole blocks, and memory blocks reach beyond its edges. Padding is
    computed and masked.
    """

    sides: Pair
    block: Pair
    before: Pair = (0, 0)
    """Rows above and columns left of a block in its memory block."""
    after: Pair = (0, 0)
    """Rows below and columns right."""

    @property
    def counts(self) -> Pair:
        """Blocks along each side."""
        rows, columns = (ceil_div(side, block) for side, block in zip(self.sides, self.block, strict=True))
        return rows, columns

    @property
    def groups(self) -> Number:
        """Number of blocks."""
        return prod(self.counts)

    @property
    def queries(self) -> Number:
        """Tokens of a query block."""
        return prod(self.block)

    @property
    def keys(self) -> Number:
        """Positions of a memory block."""
        return prod(tuple(sum(parts) for parts in zip(self.block, self.before, self.after, strict=True)))

    @property
    def reach(self) -> Pair:
        """Rows and columns of a memory block."""
        rows, columns = (sum(parts) for parts in zip(self.block, self.before, self.after, strict=True))
        return rows, columns

    def padding(self, *, around: bool) -> list[Number]:
        """The zeros around the last axes of (B, H, W, D), innermost first: up to full blocks.

        With `around` there are those of the outermost memory blocks too.
        """
        sides: list[Number] = [0, 0]
        for side, block, before, after, count in reversed(list(zip(*self, self.counts, strict=True))):
            more = count * block - side
            sides += [before, more + after] if around else [0, more]
        return sides

    @property
    def padded(self) -> Number:
        """Positions of all query blocks together."""
        return self.groups * self.queries

    def memory(self, token: int) -> tuple[range, range]:
        """Rows and columns of the memory block of `token`, within the grid."""
        rows, columns = (
            range(max(0, place // block * block - before), min(side, (place // block + 1) * block + after))
            for place, side, block, before, after in zip(divmod(token, self.sides[1]), *self, strict=True)
        )
        return rows, columns

    def generation_order(self, token: int) -> int:
        """Position in the generation order: blocks in raster order, tokens in raster order inside a block."""
        (block_row, row), (block_column, column) = (
            divmod(place, block) for place, block in zip(divmod(token, self.sides[1]), self.block, strict=True)
        )
        height, width = self.block
        return int(((block_row * self.counts[1] + block_column) * height + row) * width + column)

    def reads(self, token: int, *, causal: bool) -> Sequence[int]:
        """The tokens of the memory block of `token`; causal, those not later in the generation order."""
        rows, columns = self.memory(token)
        if self.sides[0] == 1:
            return range(columns.start, token + 1) if causal else columns
        tokens = [row * self.sides[1] + column for row in rows for column in columns]
        own_order = self.generation_order(token)
        return [other for other in tokens if self.generation_order(other) <= own_order] if causal else tokens

    def pairs(self, *, causal: bool) -> Number:
        """Σ len(reads) in closed form, `after` being none where causal.

        A memory block is a product of runs. Causal, it is the rows above, the columns left of a block's own rows (what
        stands right of them comes later), and s(s + 1)/2 pairs inside a block of s tokens.
        """
        axes = list(zip(*self, strict=True))
        if not causal:
            return prod(tuple(_runs(*axis) for axis in axes))
        (height, block_rows, above, _), (width, block, left, _) = axes
        rows_above = _starts(height, block_rows, 0) - _starts(height, block_rows, above)
        columns_left = _starts(width, block, 0) - _starts(width, block, left)
        inside = (squares(height, block_rows) * squares(width, block) + height * width) // 2
        return rows_above * _runs(*axes[1]) + squares(height, block_rows) * columns_left + inside


def squares(side: Number, block: Number) -> Number:
    """Σ size² of the blocks of one side; the last may be shorter."""
    full_blocks = side // block
    remainder = side - full_blocks * block
    return full_blocks * block * block + remainder * remainder


def _starts(side: Number, block: Number, margin: Number) -> Number:
    """Σ over places of max(0, start of the place's block - margin)."""
    full_blocks = side // block
    first = margin // block + 1  # the first block that starts beyond the margin
    full = greater(0, full_blocks - first)
    starts = block * (first * full + full * (full - 1) // 2) - margin * full
    return block * starts + (side - full_blocks * block) * greater(0, full_blocks * block - margin)


def _runs(side: Number, block: Number, before: Number, after: Number) -> Number:
    """Σ over places of the length of the run from `before` before the place's block to `after` after it."""
    inner = greater(0, side - after) // block  # blocks whose run ends within the side
    ends = block * (block * (inner * (inner + 1) // 2) + after * inner) + (side - inner * block) * side
    return ends - _starts(side, block, before)


def band_pairs(tokens: Number, block: Number) -> Number:
    """Pairs where each of `tokens` reads `block` tokens on both sides and itself, less at the ends."""
    longest = lesser(block, tokens - 1)
    return tokens * (2 * longest + 1) - longest * (longest + 1)
