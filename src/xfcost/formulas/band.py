"""A band of keys around every query, in blocks, and a few keys that all queries read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import elementwise, move, product
from xfcost.ledger.core import Core
from xfcost.ledger.matrices import matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class Band(NamedTuple):
    """P queries in blocks of s, each reading 3s keys of the band and g keys beside it; h heads, all `inner` wide.

    A head of keys and values may be `shared` by several of queries; it is read, and shifted, once for all of them.

    scores               P·3s·inner MACs, P·h·3s entries kept (or as `score_macs` says)
    global_key_scores    P·g·inner MACs, P·h·g entries kept
    softmax              P·h·(3s+g) elements
    weighted_sum, global_key_weighted_sum   as the scores
    """

    queries: Number
    side: Number
    beside: Number
    heads: Number
    inner: Number
    pairs: Number
    """Of the band alone."""
    pairs_beside: Number
    reads: str
    """Of the band alone; with the keys beside it, `reads_both`."""
    reads_tokens: Number
    shifted: Number
    """Elements of the keys with their padding, and of the values."""
    reads_both: str
    score_macs: Number | None = None
    score_moved: Number | None = None
    score_title: str = "Attention scores QKᵀ in blocks"
    shared: Number = 1

    def rows(self) -> Iterator[Operation]:
        """The rows from scaled queries to weighted sums."""
        p, s, g, h, inner = self.queries, self.side, self.beside, self.heads, self.inner
        kind: dict[str, Any] = {"mixing": "local", "reads": self.reads, "reads_tokens": self.reads_tokens, "heads": h}
        content = kind | {"content_dependent": True}
        of_beside = content | {"reads": "g", "reads_tokens": g}
        joined = p * h * (3 * s + g)
        both = {"reads": self.reads_both, "reads_tokens": self.reads_tokens + g}
        yield elementwise("scale", "Scale queries 1/√d_k", "multiply", p * inner, symbol="")
        yield product(
            "scores",
            self.score_title,
            p * 3 * s * inner if self.score_macs is None else self.score_macs,
            moved=self.shifted if self.score_moved is None else self.score_moved,
            attention_entries=p * h * 3 * s,
            matrix=matrix(p * h * 3 * s),  # the mask is in its place
            core=Core(p // s * h // self.shared, s * self.shared, 3 * s + g, inner // h),
            pairs=self.pairs,
            symbol="QKᵀ",
            **content,
        )
        yield move("mask", "Mask", symbol="mask", **kind)
        if g:
            few = matrix(p * h * g, p * h * 3 * s)
            whole = {"attention_entries": p * h * g, "matrix": few, "pairs": self.pairs_beside}
            yield product("global_key_scores", "Scores of global tokens as keys", p * g * inner, **whole, **of_beside)
            yield move("join", "Join both kinds of scores", joined, matrix=matrix(joined, joined), **kind | both)
        weights = matrix(joined, joined + p * h * g, kept=True)
        softmax = joined * FLOPS_PER_ELEMENT["softmax"]
        yield Operation(
            path="softmax", title="Softmax", flops=softmax, matrix=weights, symbol="softmax", **content | both
        )
        yield product(
            "weighted_sum", "Weighted sum AV in blocks", p * 3 * s * inner, moved=self.shifted, symbol="AV", **content
        )
        if g:
            yield product("global_key_weighted_sum", "Weighted sum of global tokens", p * g * inner, **of_beside)
            yield elementwise("add", "Add both sums", "add", p * inner)


def band_pairs(tokens: Number, side: Number) -> Number:
    """Pairs of a row of `tokens` where each reads `side` tokens on both sides and itself, less where the row ends."""
    most = lesser(side, tokens - 1)
    return tokens * (2 * most + 1) - most * (most + 1)
