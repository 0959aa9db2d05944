"""Banded attention in blocks: keys around every query, and a few global keys that all queries read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.band_tensors import BandTensors
from xfcost.formulas.rows import elementwise, matmul, move
from xfcost.ledger.matrices import AttentionCore, matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE


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
