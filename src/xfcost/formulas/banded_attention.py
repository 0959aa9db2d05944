"""Query blocks and the memory blocks that they read; banded attention in such blocks, with a few global keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater, lesser
from xfcost.formulas.rows import elementwise, matmul, move
from xfcost.formulas.tensors import copied, product, reading, view
from xfcost.ledger.matrices import AttentionCore, matrix
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Copy, Saved, Strided, Tensor, Tensors, merged_heads
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

    @property
    def query_padding(self) -> Number:
        """Elements per channel written by padding the queries; 0 without padding."""
        return self.padded if self.padded != prod(self.sides) else 0

    @property
    def frame(self) -> Number:
        """Positions of all memory blocks together, those that overlap once."""
        around = zip(self.counts, self.block, self.before, self.after, strict=True)
        return prod(tuple(count * block + before + after for count, block, before, after in around))

    @property
    def memory_elements(self) -> Number:
        """Elements per channel written by padding keys or values, margins included; 0 without padding."""
        return self.frame if self.frame != prod(self.sides) else 0

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


# Tensors of query blocks and their memory blocks ─────────────────────────────────────────────────────────────────────


def _is_row(blocks: Blocks) -> bool:
    """Are blocks runs of a sequence, which are cut without a copy?"""
    return bool(blocks.sides[0] == 1 and blocks.block[0] == 1)


def has_margins(blocks: Blocks) -> bool:
    """Do memory blocks overlap?"""
    return any(margin != 0 for margin in (*blocks.before, *blocks.after))


def query_blocks(blocks: Blocks, width: Number, of: str) -> Tensors:
    """Queries of `width`, a part of the tensor `of`, padded and cut."""
    tokens = blocks.sides[0] * blocks.sides[1]
    reads, writes = (tokens, width), (blocks.padded, width)
    return view(reads, writes, of) if _is_row(blocks) and blocks.padded == tokens else copied(reads, writes, of)


def memory_blocks(blocks: Blocks, width: Number, of: str) -> Tensors:
    """Keys and values of `width` together, a part of `of`: views of the padded sequence, copies of a grid."""
    tokens = blocks.sides[0] * blocks.sides[1]
    reads, writes = (tokens, width), (blocks.groups, blocks.keys, width)
    if not _is_row(blocks):
        return copied(reads, writes, of)
    if blocks.padded == tokens and not has_margins(blocks):
        return view(reads, writes, of)
    return Tensors((Tensor(of, reads),), (Tensor(OUTPUT, writes, storage=blocks.frame * width),))


def overlapping(blocks: Blocks, width: Number) -> Copy | None:
    """Copy of overlapping keys or values, whose blocks a fused kernel is given as samples."""
    if not (_is_row(blocks) and has_margins(blocks)):
        return None
    return Strided((blocks.groups, blocks.keys, width), blocks.frame, ((blocks.groups, blocks.queries, 0),))


def merged(blocks: Blocks, width: Number) -> Tensors:
    """Blocks joined, and the padding cropped: a view of a sequence, a copy of a grid, cropped as a view of rows."""
    reads, writes = (blocks.padded, width), (blocks.sides[0] * blocks.sides[1], width)
    if _is_row(blocks):
        return view(reads, writes)
    whole_rows = blocks.counts[1] * blocks.block[1] == blocks.sides[1]
    return Tensors((Tensor(BEFORE, reads),), (Tensor(OUTPUT, writes, storage=prod(reads if whole_rows else writes)),))


def of_cropped(row: Operation, tokens: Number, padded: Number, width: Number, name: str = BEFORE) -> Operation:
    """`row`, a map of `tokens` out of `padded` of the tensor `name`, which several samples copy."""
    if tokens == padded:
        return reading(row, name)
    return reading(row, name, saves=(Saved(name, copied=Strided((tokens, width), padded, ((tokens, 1, 0),))),))


class BandedAttention(NamedTuple):
    """P queries in blocks of s read 3s keys of their band and g global keys; h heads, h·d_k = `inner`.

    A key and value head may be `shared` by several query heads, and is gathered once for them.

    scores               P·3s·inner MACs, P·h·3s entries kept (or as `score_macs` says)
    global_key_scores    P·g·inner MACs, P·h·g entries kept
    softmax              P·h·(3s+g) elements
    weighted_sum, global_key_weighted_sum   as the scores
    """

    queries: Number
    block: Number
    global_keys: Number
    heads: Number
    inner: Number
    pairs: Number
    """Pairs of the band."""
    global_pairs: Number
    reads: str
    """Tokens read in the band, in letters; `reads_with_global` includes the global keys."""
    reads_tokens: Number
    gathered: Number
    """Elements of the keys gathered with their padding; the values have as many."""
    reads_with_global: str
    score_macs: Number | None = None
    score_moved: Number | None = None
    score_title: str = "Attention scores QKᵀ in blocks"
    shared: Number = 1
    keys: Number | None = None
    """Tokens that keys come from, without their padding; as many as queries by default."""
    classes: Number = 1
    """Residue classes of a dilated band."""
    operands: tuple[str, str, str] = ("qkv", "qkv", "qkv")
    """The tensors that queries, keys and values are parts of: names of rows."""
    global_operand: str = "qkv"
    """The tensor that global keys and values are parts of."""
    contiguous_queries: bool = False
    """Are queries contiguous, heads outermost?"""

    @property
    def _mixing(self) -> dict[str, Any]:
        return {"mixing": "local", "reads": self.reads, "reads_tokens": self.reads_tokens, "heads": self.heads}

    @property
    def _query(self) -> Tensor:
        return Tensor("scale", (self.queries, self.inner))

    def _key(self, operand: Literal[1, 2]) -> Tensor:
        tokens = self.queries if self.keys is None else self.keys
        return Tensor(self.operands[operand], (tokens, self.inner // self.shared))

    @property
    def _band(self) -> tuple[Number, ...]:
        return self.queries, self.heads, 3 * self.block

    @property
    def _head_axis(self) -> tuple[Number, Number, Number]:
        """The axis of the query heads in a token."""
        return self.heads, 0, self.inner // self.heads

    def _blocks(self, name: str) -> tuple[Tensor, Saved]:
        """Padded keys or values, and what is saved of them: all blocks, three blocks each, which overlap."""
        heads, blocks = self.heads // self.shared, self.queries // self.block // self.classes
        tokens, width = (blocks + 2) * self.block, self.inner // self.heads
        shape = (self.queries // self.block, 3 * self.block, self.inner // self.shared)
        axes = (heads * self.classes, tokens, 0), (blocks, self.block, 0)
        made = Tensor(name, (heads * self.classes * tokens, width))
        return made, Saved(name, copied=Strided(shape, heads * self.classes * tokens, axes))

    @property
    def _global_key(self) -> tuple[Tensor, Strided]:
        """The global keys or values, and their copy for every class."""
        shape = (self.global_keys, self.inner)
        merged = Strided((self.classes, *shape), self.queries, (self._head_axis, (self.classes, 0, 0)))
        return Tensor(self.global_operand, shape), merged

    def rows(self) -> Iterator[Operation]:
        """The rows from scaled queries to weighted sums."""
        p, s, g, h, inner = self.queries, self.block, self.global_keys, self.heads, self.inner
        q, band, of_global = self._query, Tensor(BEFORE, self._band), (p, h, g)
        content = self._mixing | {"content_dependent": True}
        global_content = content | {"reads": "g", "reads_tokens": g}
        with_global = {"reads": self.reads_with_global, "reads_tokens": self.reads_tokens + g}
        scaled = copied(q.shape, q.shape, self.operands[0])
        yield elementwise("scale", "Scale queries 1/√d_k", "multiply", p * inner, symbol="", tensors=scaled)
        yield self._scores(content)
        # in place; the mask is put together in every pass, and saved
        masked = Tensors((band,), makes=(Tensor("mask", (p, 3 * s), "bool", once=True),))
        yield move("mask", "Mask", symbol="mask", tensors=masked, **self._mixing)
        entries, title = p * h * (3 * s + g), "Scores of global tokens as keys"
        key, merged = self._global_key
        if g:
            facts: dict[str, Any] = {"attention_entries": p * h * g, "matrix": matrix(p * h * g, p * h * 3 * s)}
            queries = None if self.contiguous_queries else Strided(q.shape, p, (self._head_axis, (self.classes, 1, 0)))
            facts["tensors"] = product(q, key, of_global, queries, merged)
            yield matmul("global_key_scores", title, p * g * inner, pairs=self.global_pairs, **facts, **global_content)
            both = (Tensor(BEFORE, of_global), Tensor("scores", self._band))
            joined = self._mixing | with_global | {"matrix": matrix(entries, entries)}
            joined["tensors"] = Tensors(both, (Tensor(OUTPUT, (p, h, 3 * s + g)),))
            yield move("join", "Join both kinds of scores", entries, **joined)
        weights = content | with_global | {"matrix": matrix(entries, entries + p * h * g, saved=True)}
        yield elementwise("softmax", "Softmax", "softmax", entries, symbol="softmax", **weights)
        v, (padded_values, blocks) = self._key(2), self._blocks("values")
        written, saves = (Tensor(OUTPUT, q.shape),), (Saved(BEFORE, v.name), blocks)
        facts = {"moved": self.gathered, "tensors": Tensors((band, v), written, saves, between=(padded_values,))}
        yield matmul("weighted_sum", "Weighted sum AV in blocks", p * 3 * s * inner, symbol="AV", **facts, **content)
        if g:
            tensors = product(Tensor("softmax", of_global), key, q.shape, None, merged)
            title = "Weighted sum of global tokens"
            yield matmul("global_key_weighted_sum", title, p * g * inner, tensors=tensors, **global_content)
            yield elementwise("add", "Add both sums", "add", p * inner, of=("weighted_sum", BEFORE))

    def _scores(self, content: dict[str, Any]) -> Operation:
        p, s, h, entries = self.queries, self.block, self.heads, self.queries * self.heads * 3 * self.block
        return matmul(
            "scores",
            self.score_title,
            p * 3 * s * self.inner if self.score_macs is None else self.score_macs,
            moved=self.gathered if self.score_moved is None else self.score_moved,
            attention_entries=entries,
            matrix=matrix(entries),  # masked in place
            core=AttentionCore(p // s * h // self.shared, s * self.shared, 3 * s + self.global_keys, self.inner // h),
            pairs=self.pairs,
            symbol="QKᵀ",
            tensors=self._block_scores if self.score_macs is None else self._chunk_scores,
            **content,
        )

    @property
    def _chunk_scores(self) -> Tensors:
        """Queries and keys in chunks of 2s that overlap by s: both are copied and saved."""
        chunks = self.queries // self.block - self.classes
        axes = self._head_axis, (self.classes, 1, 0), (chunks // self.classes, self.block * self.classes, 0)
        merged = Strided((chunks, 2 * self.block, self.inner), self.queries, axes)
        return product(self._query, self._key(1), self._band, merged, merged)

    @property
    def _block_scores(self) -> Tensors:
        """Blocks of queries, and their keys gathered; query heads that share a key head are stacked first."""
        q, k, (padded_keys, blocks) = self._query, self._key(1), self._blocks("keys")
        stacked = (Tensor("stacked", q.shape),) if self.shared > 1 else ()
        groups = self.queries // self.block
        merged = None if self.contiguous_queries else merged_heads(q.shape, self.heads, self.block, groups)
        saves = (blocks,) if stacked else (Saved(q.name, k.name, merged), blocks)
        return Tensors((q, k), (Tensor(OUTPUT, self._band),), saves, stacked, between=(padded_keys,))


def band_pairs(tokens: Number, block: Number) -> Number:
    """Pairs where each of `tokens` reads `block` tokens on both sides and itself, less at the ends."""
    longest = lesser(block, tokens - 1)
    return tokens * (2 * longest + 1) - longest * (longest + 1)


def padded(reads: tuple[Number, ...], writes: tuple[Number, ...], name: str = BEFORE) -> Tensors:
    """Zeros behind the tokens of the tensor `name`: a copy, or nothing at all."""
    if reads == writes:
        return Tensors((Tensor(name, reads),), beside=True)
    return msgspec.structs.replace(copied(reads, writes, name), beside=name != BEFORE)
