"""Attention of blocks: of a block to itself and a margin around it, or to neighbouring, random and global blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from random import Random
from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.banded_attention import Blocks
from xfcost.formulas.component import ComponentError, Grid, Length, Letter, Number, PaddingNote, Place, Side
from xfcost.formulas.mixers import CausalMixer, NonCausalMixer
from xfcost.ledger.grid import sides_text
from xfcost.mechanisms.full import Full
from xfcost.program.attention import attend, fixed_mask, in_place, join_heads, split_heads
from xfcost.program.functions import padded
from xfcost.program.leaves import IntervalMask, Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

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

    titles: ClassVar[Mapping[str, str]] = {
        "merge": "Join blocks, crop",
        "query_blocks": "Pad queries, cut into blocks",
    }

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner, blocks = self.inner(place.dim), self.blocks(place.grid)
        reads = "W²" if isinstance(self.block, list) else "b + m" if self.before or self.after else "b"
        local = {"mixing": "local", "reads": reads, "reads_tokens": blocks.keys}
        q, kv = t.linear("qkv", x, 3 * inner, bias=self.projection_bias).split((inner, 2 * inner), -1)
        q = t.leaf("query_blocks", cut_blocks, q, options={"blocks": blocks, "around": False})
        k, v = t.leaf("memory_blocks", cut_blocks, kv, options={"blocks": blocks, "around": True}).chunk(2, -1)
        parts = (split_heads(part, self.heads) for part in (q, k, v))
        worked = Worked("windows:block_mask", {"blocks": blocks, "causal": bool(self.causal)})
        mask = partial(t.run, "mask", IntervalMask((blocks.groups, blocks.queries, blocks.keys), worked))
        y = attend(t, *parts, fused=place.fused, pairs=self.pairs(place.grid), mixing=local, mask=in_place(mask))
        y = t.leaf("merge", merged_blocks, join_heads(y), options={"blocks": blocks}, symbol="")
        return t.linear("out", y, place.dim, bias=self.projection_bias)

    def notes(self, place: Place) -> Iterator[str]:
        blocks = self.blocks(place.grid)
        is_sequence = blocks.sides[0] == 1
        more = blocks.padded - blocks.sides[0] * blocks.sides[1]
        if more:
            tokens = f"{blocks.sides[1]} tokens" if is_sequence else f"grid {sides_text(blocks.sides)}"
            block = str(blocks.queries) if is_sequence else sides_text(blocks.block)
            yield PaddingNote(
                f"{tokens} padded to whole blocks of {block}: {more} padding tokens are attended over, and counted"
            )
        if is_sequence and blocks.groups == 1:
            yield "one block holds all tokens: the public Reformer would run full attention here, without a memory"
        if not (any(blocks.before) or any(blocks.after)):
            yield "blocks without a memory never exchange information, however many layers are stacked"


def cut_blocks(t: Functions, x: Tensor, *, blocks: Blocks, around: bool) -> Tensor:
    """Pads to full blocks and cuts: (B, N, D) -> (B, G, T, D).

    `around`: overlapping memory blocks, views of the padded frame where they are of one row: (B, N, D) -> (B, G, M, D).
    """
    grid = t.pad_sides(x.unflatten(1, blocks.sides), blocks.padding(around=around))
    return cut_memory(grid, blocks.reach if around else blocks.block, blocks.block)


def cut_memory(grid: Tensor, size: Sequence[Number], step: Sequence[Number]) -> Tensor:
    """Rectangles of `size` at each `step`: (B, H, W, D) -> (B, G, M, D)."""
    cut = grid.unfold(1, size[0], step[0]).unfold(2, size[1], step[1])  # (B, R, C, D, h, w)
    return cut.permute(0, 1, 2, 4, 5, 3).flatten(3, 4).flatten(1, 2)


def merged_blocks(t: Functions, x: Tensor, *, blocks: Blocks) -> Tensor:
    """Blocks joined, with padding cropped: (B, G, T, D) -> (B, N, D)."""
    x = x.unflatten(2, blocks.block).unflatten(1, blocks.counts).transpose(2, 3)
    grid = x.flatten(3, 4).flatten(1, 2)
    return grid.narrow(1, 0, blocks.sides[0]).narrow(2, 0, blocks.sides[1]).flatten(1, 2)


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

    titles: ClassVar[Mapping[str, str]] = {
        "gather": "Gather the keys and values of every block",
        "join": "Join the blocks",
        "pad": "Pad to whole blocks",
    }

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
        return bool(grid.total <= (5 + 2 * self.random_blocks) * self.block)

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        if self.is_full(place.grid):
            return self.as_full().forward(t, x, place)
        n, u, last = place.grid.total, self.blocks(place.grid), self.blocks(place.grid) - 1
        x = t.leaf("pad", padded, x, options={"after": u * self.block - n})
        parts = t.linear("qkv", x, 3 * self.inner(place.dim), bias=self.projection_bias).chunk(3, -1)
        # heads before blocks, so that gathered blocks are contiguous for the products: (B, H, U, T, K)
        q, k, v = (split_heads(part, self.heads).unflatten(2, (u, self.block)) for part in parts)
        global_pairs, edge_pairs, middle_pairs = self._pairs(place.grid)
        queries = q.unfold(2, 1, last).squeeze(-1).flatten(2, 3).unsqueeze(2)
        everything = (part.flatten(2, 3).unsqueeze(2) for part in (k, v))
        global_y = self._core(t.part("global", "global blocks"), place, "global", queries, everything, global_pairs)
        of_edge, of_middle = (self._read(t, name, u, x) for name in ("edge", "middle"))
        edges = q.narrow(2, 1, last - 1).unfold(2, 1, last - 2).squeeze(-1)
        gathered_kv = (t.leaf("gather", gathered, part, of_edge) for part in (k, v))
        edge_y = self._core(t.part("edge", "blocks beside them"), place, "edge", edges, gathered_kv, edge_pairs)
        gathered_kv = (t.leaf("gather", gathered, part, of_middle) for part in (k, v))
        middle_y = self._core(t, place, "middle", q.narrow(2, 2, u - 4), gathered_kv, middle_pairs)
        y = t.leaf("join", in_sequence, global_y.unflatten(3, (2, self.block)).select(2, 0), edge_y, middle_y)
        y = t.linear("out", join_heads(y.flatten(2, 3)), place.dim, bias=self.projection_bias)
        return y.narrow(1, 0, n)

    def _read(self, t: Operations, name: str, blocks: Number, like: Tensor) -> Tensor:
        """The blocks that the two blocks beside the global ones read (`edge`), or all others: (G, X)."""
        shape = (2, self.read_by_middle - 1) if name == "edge" else (blocks - 4, self.read_by_middle)
        worked = Worked("windows:blocks_read", {"config": self, "blocks": blocks, "name": name}, "int64")
        return t.constant(f"{name}_GX", worked, *shape, like=like)

    def _core(
        self, t: Operations, place: Place, name: str, q: Tensor, kv: Iterable[Tensor], pairs: Number
    ) -> Tensor:  # fmt: skip
        """Queries and keys of G blocks side by side: (B, H, G, T, K) -> (B, H, G, T, K)."""
        k, v = kv
        groups, keys = k.shape[2], k.shape[3]
        padding = self.blocks(place.grid) * self.block - place.grid.total  # of the last block, which all read
        reads = {"global": "N", "edge": "(4+r)·b", "middle": "(5+r)·b"}[name]
        mixing = {"mixing": "global" if name == "global" else "local", "reads": reads, "heads": self.heads}
        mixing["reads_tokens"] = keys - padding
        mask = None
        if padding != 0:
            options = {"config": self, "blocks": self.blocks(place.grid), "name": name, "tokens": place.grid.total}
            shut = Weight((groups, 1, keys), Worked("windows:padding_shut", options), "shut", learns=False)
            mask = fixed_mask(t, shut)
        return attend(t, q, k, v, fused=place.fused, pairs=pairs, mixing=mixing, mask=mask)

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


def gathered(t: Functions, blocks: Tensor, read: Tensor) -> Tensor:
    """The blocks that each query block reads, concatenated: (B, H, U, T, K), (G, X) -> (B, H, G, X·T, K)."""
    return blocks.index_select(2, read.flatten()).unflatten(2, read.shape).flatten(3, 4)


def in_sequence(t: Functions, global_blocks: Tensor, edge: Tensor, middle: Tensor) -> Tensor:
    """Blocks in sequence order: global and edge ones (B, H, 2, T, K), U - 4 middle ones -> (B, H, U, T, K)."""
    first, last = ([part.narrow(2, at, 1) for part in (global_blocks, edge)] for at in (0, 1))
    return t.cat([*first, middle, *reversed(last)], 2)
