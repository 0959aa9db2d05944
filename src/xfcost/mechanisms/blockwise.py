"""Blockwise local attention: a block of queries reads its own block and a margin around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from xfcost.formulas.attention import attention_of, masks_of_groups
from xfcost.formulas.component import ComponentError, Grid, Length, Letter, Number, Operation, PaddingNote, Place, Side
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.query_blocks import Blocks, memory_blocks, merged, of_cropped, overlapping, query_blocks
from xfcost.formulas.rows import linear, move
from xfcost.ledger.grid import sides_text
from xfcost.ledger.operation import Mixing

Margin = Annotated[int, msgspec.Meta(ge=0, le=2**32)]
Columns = Annotated[int, msgspec.Meta(ge=0, le=2**16)]


class Blockwise(CausalMixer, frozen=True, kw_only=True, tag="blockwise"):
    """Softmax attention of query blocks against memory blocks, two matrix products for all blocks at once.

    One component for what the field has under several names:

    - local attention in plain blocks: `block` alone (Liu et al. 2018, "Generating Wikipedia", §4.2.4: blocks of 256)
    - Reformer's local layers: `before` and `after` in whole chunks (`LocalSelfAttention` of the public code)
    - Image Transformer, 1D local: `block` l_q, `before` l_m (Parmar et al. 2018, §3.3)
    - Image Transformer, 2D local: `block` [h_q, w_q], `above` h_m, `beside` w_m (the same section)

    N tokens padded up to G blocks of b tokens; every block's memory has b + m positions, m of them around it.

        qkv            N·d·3h·d_k MACs
        scores         G·b·(b + m)·h·d_k MACs, h·G·b·(b + m) entries kept
        weighted_sum   G·b·(b + m)·h·d_k MACs
        out            N·h·d_k·d MACs

    In 2D, b = h_q·w_q and b + m = (h_q + h_m)·(w_q + 2·w_m), an area. (Tay et al. 2022 print l_m = w_q·q_h + 2(h_m +
    w_m), which adds an area to lengths.) Queries, keys and values are padded after their projection, as in the public
    `local-attention`; no token reads padding. Causal blocks are generated one after the other in raster order, and a
    block's tokens in raster order inside it, so that what stands right of a block comes later: it is computed, masked.
    """

    block: Annotated[Length, Letter("b")] | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=2), Letter("W")]
    """Tokens of a query block in a sequence; or its [rows, columns] on a grid."""
    before: Annotated[Margin, Letter("m")] = 0
    """Tokens before a query block that it reads, in a sequence."""
    after: Annotated[Margin, Letter("m")] = 0
    """Tokens after a query block that it reads, in a sequence."""
    above: Annotated[Columns, Letter("W")] = 0
    """Rows above a query block that it reads, on a grid."""
    below: Annotated[Columns, Letter("W")] = 0
    """Rows below a query block that it reads, on a grid."""
    beside: Annotated[Columns, Letter("W")] = 0
    """Columns on either side of a query block that it reads, on a grid."""

    def check(self, place: Place) -> None:
        super().check(place)
        is_sequence = isinstance(self.block, int)
        for field in ("above", "below", "beside") if is_sequence else ("before", "after"):
            if getattr(self, field):
                right_fields = "`before` and `after`" if is_sequence else "`above`, `below` and `beside`"
                layout = "of a sequence" if is_sequence else "of rows and columns"
                raise ComponentError(
                    field, f"the memory of a block {layout} is set by {right_fields}; leave `{field}` out"
                )
        if not is_sequence and (place.grid.special or len(place.grid.sides) != 2):  # noqa: PLR2004 - H×W
            raise ComponentError(
                "block",
                f"{self.block} are rows and columns, and the tokens are {place.grid.shape_text()}; "
                "give the tokens of a block as one number, or an image without special tokens",
            )
        for field in ("after", "below"):
            if self.causal and getattr(self, field):
                raise ComponentError(
                    field, f"tokens {field} a causal block are later and never read; leave `{field}` out"
                )

    def label(self) -> str:
        return "Causal blockwise attention" if self.causal else "Blockwise attention"

    def blocks(self, grid: Grid) -> Blocks:
        """The query blocks and memory blocks of `grid`."""
        if isinstance(self.block, list):
            height, width = grid.sides
            rows, columns = self.block
            return Blocks((height, width), (rows, columns), (self.above, self.beside), (self.below, self.beside))
        return Blocks((1, grid.total), (1, self.block), (0, self.before), (0, self.after))

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.blocks(grid).reads(token, causal=bool(self.causal))

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.blocks(grid).pairs(causal=bool(self.causal))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner, blocks = self.inner(d), self.blocks(place.grid)
        mixing: Mixing = "local"
        reads = "W²" if isinstance(self.block, list) else "b + m" if self.before or self.after else "b"
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        queries, memory = query_blocks(blocks, inner, "qkv"), memory_blocks(blocks, 2 * inner, "qkv")
        yield move("query_blocks", "Pad queries, cut into blocks", blocks.query_padding * inner, tensors=queries)
        title = "Pad keys and values, cut memory blocks"
        yield move("memory_blocks", title, blocks.memory_elements * 2 * inner, tensors=memory)
        core: dict[str, Any] = {"queries": blocks.queries, "keys": blocks.keys, "groups": blocks.groups}
        local: dict[str, Any] = {"mixing": mixing, "reads": reads}
        if place.fused:
            mask = masks_of_groups(blocks.groups, blocks.queries, blocks.keys)
            yield move("mask", "Mask", reads_tokens=blocks.keys, symbol="mask", tensors=mask, **local)
        copy = overlapping(blocks, inner)
        core |= {"operands": ("query_blocks", "memory_blocks", "memory_blocks"), "fused_copies": (None, copy, copy)}
        core |= {"masked": True, "mask_in_place": True, "mask_kind": "groups"}
        yield from attention_of(self, place, **core, **local)
        yield move("merge", "Join blocks, crop", symbol="", tensors=merged(blocks, inner))
        out = linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)
        yield of_cropped(out, n, blocks.padded, inner)

    def notes(self, place: Place) -> Iterator[str]:
        blocks = self.blocks(place.grid)
        is_sequence = blocks.sides[0] == 1
        more = blocks.padded - blocks.sides[0] * blocks.sides[1]
        if more:
            tokens = f"{blocks.sides[1]} tokens" if is_sequence else f"grid {sides_text(blocks.sides)}"
            block = str(blocks.queries) if is_sequence else sides_text(blocks.block)
            yield PaddingNote(
                f"{tokens} padded to whole blocks of {block}: {more} positions more are attended over, and counted"
            )
        if is_sequence and blocks.groups == 1:
            yield "one block holds all tokens: the public Reformer would run full attention here, without a memory"
        if not (any(blocks.before) or any(blocks.after)):
            yield "blocks without a memory never learn of each other, however many layers are stacked"
