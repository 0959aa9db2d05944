"""Banded attention in blocks: keys around every query, and a few global keys that all queries read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.rows import elementwise, matmul, move
from xfcost.formulas.tensors import copied
from xfcost.ledger.matrices import AttentionCore, matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Merged, Saved, Strided, Tensor, Tensors


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
    def _tensors(self) -> BandTensors:
        keys = self.queries if self.keys is None else self.keys
        sizes = (self.queries, self.block, keys, self.global_keys, self.heads, self.inner, self.shared, self.classes)
        return BandTensors(*sizes, self.operands, self.global_operand, self.contiguous_queries)

    @property
    def _mixing(self) -> dict[str, Any]:
        return {"mixing": "local", "reads": self.reads, "reads_tokens": self.reads_tokens, "heads": self.heads}

    def rows(self) -> Iterator[Operation]:
        """The rows from scaled queries to weighted sums."""
        p, s, g, h, inner = self.queries, self.block, self.global_keys, self.heads, self.inner
        tensors = self._tensors
        content = self._mixing | {"content_dependent": True}
        global_content = content | {"reads": "g", "reads_tokens": g}
        with_global = {"reads": self.reads_with_global, "reads_tokens": self.reads_tokens + g}
        yield elementwise("scale", "Scale queries 1/√d_k", "multiply", p * inner, symbol="", tensors=tensors.scale)
        yield self._scores(content)
        yield move("mask", "Mask", symbol="mask", tensors=tensors.mask, **self._mixing)
        entries, title = p * h * (3 * s + g), "Scores of global tokens as keys"
        if g:
            facts: dict[str, Any] = {"attention_entries": p * h * g, "matrix": matrix(p * h * g, p * h * 3 * s)}
            facts["tensors"] = tensors.global_key_scores
            yield matmul("global_key_scores", title, p * g * inner, pairs=self.global_pairs, **facts, **global_content)
            joined = self._mixing | with_global | {"matrix": matrix(entries, entries)}
            yield move("join", "Join both kinds of scores", entries, tensors=tensors.join, **joined)
        weights = content | with_global | {"matrix": matrix(entries, entries + p * h * g, saved=True)}
        yield elementwise("softmax", "Softmax", "softmax", entries, symbol="softmax", **weights)
        banded = content | {"moved": self.gathered, "symbol": "AV", "tensors": tensors.weighted_sum}
        yield matmul("weighted_sum", "Weighted sum AV in blocks", p * 3 * s * inner, **banded)
        if g:
            global_content["tensors"] = tensors.global_key_weighted_sum
            yield matmul("global_key_weighted_sum", "Weighted sum of global tokens", p * g * inner, **global_content)
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
            tensors=self._tensors.block_scores if self.score_macs is None else self._tensors.chunk_scores,
            **content,
        )


def band_pairs(tokens: Number, block: Number) -> Number:
    """Pairs where each of `tokens` reads `block` tokens on both sides and itself, less at the ends."""
    longest = lesser(block, tokens - 1)
    return tokens * (2 * longest + 1) - longest * (longest + 1)


# Tensors of banded attention (`formulas/banded_attention.py`): blocks of queries, three blocks of keys each.


class BandTensors(NamedTuple):
    """P `queries` in blocks of s and `keys` in h heads, h·d_k = `inner`, g global keys, in R `classes` side by side."""

    queries: Number
    block: Number
    keys: Number
    global_keys: Number
    heads: Number
    inner: Number
    shared: Number
    classes: Number
    operands: tuple[str, str, str]
    """The tensors that queries, keys and values are parts of: names of rows."""
    global_operand: str
    """The tensor that global keys and values are parts of."""
    contiguous_queries: bool
    """Are queries contiguous, heads outermost, so that no product copies them?"""

    @property
    def _query(self) -> Tensor:
        return Tensor("scale", (self.queries, self.inner))

    @property
    def _band(self) -> tuple[Number, ...]:
        return self.queries, self.heads, 3 * self.block

    def _key(self, name: str) -> Tensor:
        return Tensor(name, (self.keys, self.inner // self.shared))

    @property
    def _heads(self) -> tuple[Number, Number, Number]:
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

    def _queries(self, shape: tuple[Number, ...], groups: Number) -> Merged | None:
        return None if self.contiguous_queries else Merged(shape, self.heads, self.block, groups)

    @property
    def scale(self) -> Tensors:
        """Queries times 1/√d_k."""
        return copied(self._query.shape, self._query.shape, self.operands[0])

    @property
    def chunk_scores(self) -> Tensors:
        """Queries and keys in chunks of 2s that overlap by s: both are copied and saved."""
        q, k = self._query, self._key(self.operands[1])
        chunks = self.queries // self.block - self.classes
        of_class = chunks // self.classes
        axes = self._heads, (self.classes, 1, 0), (of_class, self.block * self.classes, 0)
        merged = Strided((chunks, 2 * self.block, self.inner), self.queries, axes)
        saves = (Saved(q.name, k.name, merged), Saved(k.name, q.name, merged))
        return Tensors((q, k), (Tensor(OUTPUT, self._band),), saves)

    @property
    def block_scores(self) -> Tensors:
        """Blocks of queries, and their keys gathered; query heads that share a key head are stacked first."""
        q, k = self._query, self._key(self.operands[1])
        padded_keys, blocks = self._blocks("keys")
        stacked = (Tensor("stacked", q.shape),) if self.shared > 1 else ()
        merged = self._queries(q.shape, self.queries // self.block)
        saves = (Saved(q.name, k.name, merged), blocks) if self.shared == 1 else (blocks,)
        return Tensors((q, k), (Tensor(OUTPUT, self._band),), saves, stacked, between=(padded_keys,))

    @property
    def mask(self) -> Tensors:
        """In place; the mask is put together in every pass, and saved."""
        shut = Tensor("mask", (self.queries, 3 * self.block), "bool", once=True)
        return Tensors((Tensor(BEFORE, self._band),), makes=(shut,))

    @property
    def _global_key(self) -> tuple[Tensor, Strided]:
        """The global keys or values, and their copy for every class."""
        shape = (self.global_keys, self.inner)
        merged = Strided((self.classes, *shape), self.queries, (self._heads, (self.classes, 0, 0)))
        return Tensor(self.global_operand, shape), merged

    @property
    def global_key_scores(self) -> Tensors:
        """All queries by the global keys."""
        (k, merged), q = self._global_key, self._query
        queries = Strided(q.shape, self.queries, (self._heads, (self.classes, 1, 0)))
        saves = (Saved(q.name, k.name, None if self.contiguous_queries else queries), Saved(k.name, q.name, merged))
        return Tensors((q, k), (Tensor(OUTPUT, (self.queries, self.heads, self.global_keys)),), saves)

    @property
    def join(self) -> Tensors:
        """Scores of global keys before those of the band."""
        both = (Tensor(BEFORE, (self.queries, self.heads, self.global_keys)), Tensor("scores", self._band))
        entries = (self.queries, self.heads, 3 * self.block + self.global_keys)
        return Tensors(both, (Tensor(OUTPUT, entries),))

    @property
    def weighted_sum(self) -> Tensors:
        """The weights, and the values gathered."""
        weights, v = Tensor(BEFORE, self._band), self._key(self.operands[2])
        padded_values, blocks = self._blocks("values")
        saves = (Saved(weights.name, v.name), blocks)
        return Tensors((weights, v), (Tensor(OUTPUT, self._query.shape),), saves, between=(padded_values,))

    @property
    def global_key_weighted_sum(self) -> Tensors:
        """The weights of the global keys, and their values."""
        (v, merged), weights = self._global_key, Tensor("softmax", (self.queries, self.heads, self.global_keys))
        saves = (Saved(weights.name, v.name), Saved(v.name, weights.name, merged))
        return Tensors((weights, v), (Tensor(OUTPUT, self._query.shape),), saves)


def padded(reads: tuple[Number, ...], writes: tuple[Number, ...], name: str = BEFORE) -> Tensors:
    """Zeros behind the tokens of the tensor `name`: a copy, or nothing at all."""
    if reads == writes:
        return Tensors((Tensor(name, reads),), beside=True)
    return msgspec.structs.replace(copied(reads, writes, name), beside=name != BEFORE)
