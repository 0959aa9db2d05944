"""Attention of blocks: of a block to itself and a margin around it, or to neighbouring, random and global blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.attention import attention_of, masks_of_groups
from xfcost.formulas.banded_attention import (
    Blocks,
    memory_blocks,
    merged,
    of_cropped,
    overlapping,
    padded,
    query_blocks,
)
from xfcost.formulas.component import ComponentError, Grid, Length, Letter, Number, Operation, PaddingNote, Place, Side
from xfcost.formulas.mixers import CausalMixer, NonCausalMixer
from xfcost.formulas.rows import linear, move
from xfcost.formulas.tensors import cropped
from xfcost.ledger.grid import sides_text
from xfcost.ledger.operation import Mixing
from xfcost.ledger.tensors import OUTPUT, Tensor, Tensors, merged_heads
from xfcost.mechanisms.full import Full

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

    short_name = "Blockwise attention"

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

    @property
    def has_windows(self) -> bool:
        return isinstance(self.block, list)

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


# The keys and values gathered for the blocks next to the global ones, and for the others.
EDGE: Final = ("gather", "edge values")
MIDDLE: Final = ("middle keys", "middle values")


class BlockSparse(NonCausalMixer, frozen=True, kw_only=True, tag="block_sparse"):
    """BigBird's internal construction (ITC): window, global and random blocks (Zaheer et al. 2020, §2 and appendix D).

    N tokens in u = ⌈N/b⌉ blocks of b, P = u·b tokens with padding, which is projected and attended over like tokens,
    and masked. The first and the last block read all tokens and are read by all. Every other block reads itself, its
    two neighbours, the first and the last block, and r blocks that were drawn at random once; for the second block and
    the one before the last, a neighbour is global already. The keys and values of a block are gathered side by side:

        qkv                  P·d·3h·d_k MACs
        global_scores        2b·P·h·d_k MACs, h·2b·P entries kept, where blocks are many
        global_weighted_sum  2b·P·h·d_k MACs, where blocks are many
        edge_scores          2·b·(4+r)·b·h·d_k MACs, h·2·b·(4+r)·b entries kept, where blocks are many
        edge_weighted_sum    2·b·(4+r)·b·h·d_k MACs, where blocks are many
        scores               (u-4)·b·(5+r)·b·h·d_k MACs, h·(u-4)·b·(5+r)·b entries kept; N²·h·d_k MACs, h·N² entries
                             where blocks are few
        weighted_sum         (u-4)·b·(5+r)·b·h·d_k MACs; N²·h·d_k MACs where blocks are few
        out                  P·h·d_k·d MACs

    With N ≤ (5 + 2r)·b there are too few blocks to choose from, and all tokens read all: then the rows are those of
    full attention, of P = N tokens, as in the public implementation.

    Blocks are drawn per block of queries out of those that it does not read anyway, the same for all heads (the public
    implementation draws for every head; the counts are the same).
    """

    short_name = "Block-sparse attention"
    non_causal_reason: ClassVar[str] = "the first and the last block read all tokens, and all read them"

    block: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("b")] = 64
    """Tokens of a block, b."""
    window: Literal[3] = 3
    """Blocks of the sliding window, a block itself included."""
    global_blocks: Literal[2] = 2
    """Number of global blocks, which read all tokens and are read by all: the first and the last."""
    random_blocks: Annotated[int, msgspec.Meta(ge=0, le=2**10), Letter("r")] = 3
    """Random blocks r that every block reads unless it is global."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)] = 0
    """Seed of the random blocks; it does not change the cost."""

    @property
    def read_by_middle(self) -> Number:
        """Blocks read by a block that is neither global nor next to a global block."""
        return self.window + self.global_blocks + self.random_blocks

    def blocks(self, grid: Grid) -> Number:
        """u."""
        return ceil_div(grid.total, self.block)

    def is_full(self, grid: Grid) -> bool:
        """Is the sequence too short for random blocks, so that attention is full?"""
        n = grid.total
        return isinstance(n, int) and n <= (5 + 2 * self.random_blocks) * self.block

    def drawn(self, blocks: int, block: int) -> list[int]:
        """The random blocks of `block`, one of u = `blocks`: r of those that it does not read anyway, in O(r).

        Floyd's sampling (Bentley and Floyd 1987), by the one method of `random` that is the same in every Python.
        """
        source = Random((self.seed * 2**32 + blocks) * 2**32 + block)  # noqa: S311 - a pattern, not a secret
        unavailable = sorted({0, block - 1, block, block + 1, blocks - 1})
        available = blocks - len(unavailable)
        chosen: list[int] = []
        for last in range(available - self.random_blocks, available):
            candidate = int(source.random() * (last + 1))
            chosen.append(last if candidate in chosen else candidate)
        return [_available_block(unavailable, number) for number in chosen]

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        n, blocks, block = grid.total, self.blocks(grid), token // self.block
        if self.is_full(grid) or block in (0, blocks - 1):
            return range(n)
        unavailable = {0, block - 1, block, block + 1, blocks - 1}
        numbers = [*sorted(unavailable), *self.drawn(blocks, block)]
        return [
            *chain.from_iterable(range(self.block * number, min(self.block * (number + 1), n)) for number in numbers)
        ]

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total**2 if self.is_full(grid) else sum(self._pairs(grid))

    def _pairs(self, grid: Grid) -> tuple[Number, Number, Number]:
        """Pairs of the global blocks, of their two neighbours, and of the others. The last block may be shorter."""
        n, b, blocks = grid.total, self.block, self.blocks(grid)
        last = n - (blocks - 1) * b
        read = (self.read_by_middle - 1) * b + last
        return (b + last) * n, 2 * b * (read - b), (blocks - 4) * b * read

    def operations(self, place: Place) -> Iterator[Operation]:
        if self.is_full(place.grid):
            yield from self.as_full().operations(place)
            return
        d, b, u, read = place.dim, self.block, self.blocks(place.grid), self.read_by_middle
        inner, p = self.inner(d), u * b
        n = place.grid.total
        yield move("pad", "Pad to whole blocks", 0 if p == n else p * d, tensors=padded((n, d), (p, d)))
        yield linear("qkv", "Q, K, V projections", p, d, 3 * inner, bias=self.projection_bias)
        global_pairs, edge_pairs, middle_pairs = self._pairs(place.grid)
        yield from self._core(place, "global_", 1, 2 * b, p, global_pairs)
        gathered = 2 * b * inner * ((u - 4) * read + 2 * (read - 1))
        tensors = self._gathered(place.grid, inner)
        yield move("gather", "Gather the keys and values of every block", gathered, tensors=tensors)
        yield from self._core(place, "edge_", 2, b, (read - 1) * b, edge_pairs)
        yield from self._core(place, "", u - 4, b, read * b, middle_pairs)
        last = "attention" if place.fused else "weighted_sum"
        parts = (("global_", 2 * b), ("edge_", 2 * b), ("", (u - 4) * b))
        reads = tuple(Tensor(f"{prefix}{last}", (tokens, inner)) for prefix, tokens in parts)
        yield move("join", "Join the blocks", p * inner, tensors=Tensors(reads, (Tensor(OUTPUT, (p, inner)),)))
        yield cropped(
            linear("out", "Output projection W_O", p, inner, d, bias=self.projection_bias), p - place.grid.total
        )

    def _gathered(self, grid: Grid, inner: Number) -> Tensors:
        """Keys and values of the blocks next to the global ones, and of the others."""
        b, u, read = self.block, self.blocks(grid), self.read_by_middle
        reads, writes = [], []
        for groups, blocks, names in ((2, read - 1, EDGE), (u - 4, read, MIDDLE)):
            index = Tensor("blocks read", (groups, blocks), "int64", once=True, held=True)
            reads += 2 * [Tensor("qkv", (u * b, inner)), index]
            writes += [Tensor(OUTPUT if name == "gather" else name, (groups, blocks * b, inner)) for name in names]
        return Tensors(tuple(reads), tuple(writes), beside=True)

    def _core(
        self, place: Place, prefix: str, groups: Number, queries: Number, keys: Number, pairs: Number
    ) -> Iterator[Operation]:
        note = {"global_": "global blocks", "edge_": "blocks beside them", "": ""}[prefix]
        reads = {"global_": "N", "edge_": "(4+r)·b", "": "(5+r)·b"}[prefix]
        mixing: Mixing = "global" if prefix == "global_" else "local"
        padding = self.blocks(place.grid) * self.block - place.grid.total  # of the last block, which all read
        if padding != 0 and place.fused:
            title = f"Mask ({note})" if note else "Mask"
            yield move(f"{prefix}mask", title, mixing=mixing, reads=reads, reads_tokens=keys - padding)
        core = {"queries": queries, "keys": keys, "groups": groups, "pairs": pairs, "mixing": mixing, "reads": reads}
        core |= {"masked": padding != 0, "padding": padding, "prefix": prefix, "label": note}
        yield from attention_of(self, place, **core, **self._layout(place, prefix, groups, queries))

    def _layout(self, place: Place, prefix: str, groups: Number, queries: Number) -> dict[str, Any]:
        """How operands lie: heads before blocks; the global blocks' queries are copied, other blocks' keys gathered."""
        inner, tokens = self.inner(place.dim), place.grid.total
        if prefix == "global_":
            keys = merged_heads((self.blocks(place.grid) * self.block, inner), self.heads, tokens)
            made = Tensor("global queries", (queries, inner))
            facts = {"between": (made,), "gathered_queries": True, "fused_copies": (None, keys, keys)}
            return facts | {"operands": (made.name, "qkv", "qkv"), "mask_kind": "held"}
        copies = (merged_heads((groups, queries, inner), self.heads, tokens), None, None)
        operands = ("qkv", *(EDGE if prefix else MIDDLE))
        return {"operands": operands, "gathered": True, "fused_copies": copies, "mask_kind": "held"}

    def as_full(self) -> Full:
        """Full attention, for short sequences."""
        return Full(heads=self.heads, head_dim=self.head_dim, projection_bias=self.projection_bias, causal=self.causal)

    def notes(self, place: Place) -> Iterator[str]:
        n = place.grid.total
        least = (5 + 2 * self.random_blocks) * self.block
        if self.is_full(place.grid):
            yield f"{n} tokens are no more than (5 + 2·{self.random_blocks})·{self.block} = {least}: full attention"
            return
        whole = self.blocks(place.grid) * self.block
        if whole != n:
            yield PaddingNote(
                f"{n} tokens padded to {whole} for blocks of {self.block}: {whole - n} padding tokens are projected "
                "and attended over (masked), and counted"
            )


def _available_block(unavailable: list[int], number: int) -> int:
    """The `number`-th block that is not in `unavailable` (sorted)."""
    for block in unavailable:
        number += block <= number
    return number
