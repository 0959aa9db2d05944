"""Banded attention in blocks: keys around every query, and a few global keys that all queries read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import elementwise, matmul, move
from xfcost.ledger.attention_core import AttentionCore
from xfcost.ledger.matrices import matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


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

    def rows(self) -> Iterator[Operation]:
        """The rows from scaled queries to weighted sums."""
        p, s, g, h, inner = self.queries, self.block, self.global_keys, self.heads, self.inner
        mixing: dict[str, Any] = {"mixing": "local", "reads": self.reads, "reads_tokens": self.reads_tokens, "heads": h}
        content = mixing | {"content_dependent": True}
        global_content = content | {"reads": "g", "reads_tokens": g}
        all_entries = p * h * (3 * s + g)
        with_global = {"reads": self.reads_with_global, "reads_tokens": self.reads_tokens + g}
        yield elementwise("scale", "Scale queries 1/√d_k", "multiply", p * inner, symbol="")
        yield matmul(
            "scores",
            self.score_title,
            p * 3 * s * inner if self.score_macs is None else self.score_macs,
            moved=self.gathered if self.score_moved is None else self.score_moved,
            attention_entries=p * h * 3 * s,
            matrix=matrix(p * h * 3 * s),  # masked in place
            core=AttentionCore(p // s * h // self.shared, s * self.shared, 3 * s + g, inner // h),
            pairs=self.pairs,
            symbol="QKᵀ",
            **content,
        )
        yield move("mask", "Mask", symbol="mask", **mixing)
        if g:
            global_matrix = matrix(p * h * g, p * h * 3 * s)
            global_facts = {"attention_entries": p * h * g, "matrix": global_matrix, "pairs": self.global_pairs}
            yield matmul(
                "global_key_scores", "Scores of global tokens as keys", p * g * inner, **global_facts, **global_content
            )
            yield move(
                "join",
                "Join both kinds of scores",
                all_entries,
                matrix=matrix(all_entries, all_entries),
                **mixing | with_global,
            )
        weights = matrix(all_entries, all_entries + p * h * g, kept=True)
        softmax = all_entries * FLOPS_PER_ELEMENT["softmax"]
        yield Operation(
            path="softmax", title="Softmax", flops=softmax, matrix=weights, symbol="softmax", **content | with_global
        )
        yield matmul(
            "weighted_sum", "Weighted sum AV in blocks", p * 3 * s * inner, moved=self.gathered, symbol="AV", **content
        )
        if g:
            yield matmul("global_key_weighted_sum", "Weighted sum of global tokens", p * g * inner, **global_content)
            yield elementwise("add", "Add both sums", "add", p * inner)


def band_pairs(tokens: Number, block: Number) -> Number:
    """Pairs where each of `tokens` reads `block` tokens on both sides and itself, less at the ends."""
    longest = lesser(block, tokens - 1)
    return tokens * (2 * longest + 1) - longest * (longest + 1)
