"""Block-sparse attention: windows, a few random blocks, and the first and the last block for all (BigBird)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.attention import attention_of
from xfcost.formulas.banded_attention import padded
from xfcost.formulas.component import Grid, Letter, Number, Operation, PaddingNote, Place
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import linear, move
from xfcost.ledger.operation import Mixing
from xfcost.ledger.tensors import OUTPUT, Tensor, Tensors, merged_heads
from xfcost.mechanisms.full import Full

# The keys and values gathered for the blocks beside the global ones, and for the others.
EDGE: Final = ("gather", "edge values")
MIDDLE: Final = ("middle keys", "middle values")


class BlockSparse(NonCausalMixer, frozen=True, kw_only=True, tag="block_sparse"):
    """BigBird's internal construction (ITC): window, global and random blocks (Zaheer et al. 2020, §2 and appendix D).

    N tokens in u = ⌈N/b⌉ blocks of b, P = u·b tokens with padding, which is projected and attended over like tokens,
    and masked. The first and the last block read all tokens and are read by all. Every other block reads itself, its
    two neighbours, the first and the last block, and r blocks that were drawn at random once; for the second block and
    the one before the last, a neighbour is global already. The keys and values of a block are gathered side by side:

        qkv                   P·d·3d MACs
        global_scores         2b·P·d MACs, h·2b·P entries kept
        edge_scores           2·b·(4+r)·b·d MACs
        scores                (u-4)·b·(5+r)·b·d MACs, h·(u-4)·b·(5+r)·b entries kept
        …_weighted_sum        as the scores
        out                   P·d² MACs

    With N ≤ (5 + 2r)·b there are too few blocks to choose from, and all tokens read all: then the rows are those of
    full attention, as in the public implementation.

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
        gathered = 2 * b * inner * ((u - 4) * read + 2 * (read - 1))
        tensors = self._gathered(place.grid, inner)
        yield move("gather", "Gather the keys and values of every block", gathered, tensors=tensors)
        for prefix, groups, queries, keys, pairs in self._cores(place.grid):
            yield from self._core(place, prefix, groups, queries, keys, pairs)
        last = "attention" if place.fused else "weighted_sum"
        parts = (("global_", 2 * b), ("edge_", 2 * b), ("", (u - 4) * b))
        reads = tuple(Tensor(f"{prefix}{last}", (tokens, inner)) for prefix, tokens in parts)
        yield move("join", "Join the blocks", p * inner, tensors=Tensors(reads, (Tensor(OUTPUT, (p, inner)),)))
        yield linear("out", "Output projection W_O", p, inner, d, bias=self.projection_bias)

    def _gathered(self, grid: Grid, inner: Number) -> Tensors:
        """Keys and values of the blocks beside the global ones, and of the others."""
        b, u, read = self.block, self.blocks(grid), self.read_by_middle
        reads, writes = [], []
        for groups, blocks, names in ((2, read - 1, EDGE), (u - 4, read, MIDDLE)):
            index = Tensor("blocks read", (groups, blocks), "int64", once=True, held=True)
            reads += 2 * [Tensor("qkv", (u * b, inner)), index]
            writes += [Tensor(OUTPUT if name == "gather" else name, (groups, blocks * b, inner)) for name in names]
        return Tensors(tuple(reads), tuple(writes), beside=True)

    def _cores(self, grid: Grid) -> Iterator[tuple[str, Number, Number, Number, Number]]:
        """(prefix, groups, queries, keys, pairs) of the three attention cores."""
        b, u, read = self.block, self.blocks(grid), self.read_by_middle
        global_pairs, edge_pairs, middle_pairs = self._pairs(grid)
        yield "global_", 1, 2 * b, u * b, global_pairs
        yield "edge_", 2, b, (read - 1) * b, edge_pairs
        yield "", u - 4, b, read * b, middle_pairs

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
        yield from attention_of(
            self,
            place,
            masked=padding != 0,
            padding=padding,
            prefix=prefix,
            label=note,
            **core,
            **self._layout(place, prefix, groups, queries),
        )

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
