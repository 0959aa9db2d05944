"""Banded attention in blocks: keys around every query, and a few global keys that all queries read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.rows import elementwise, matmul, move
from xfcost.formulas.tensors import copied, product
from xfcost.ledger.matrices import AttentionCore, matrix
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Strided, Tensor, Tensors, merged_heads
from xfcost.ledger.units import Number


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
