"""Rows of factorized attention whose two factors share one softmax (Child et al. 2019, equation 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final, Literal, NamedTuple

from xfcost.formulas.rows import elementwise, matmul, move
from xfcost.formulas.sparse_tensors import MergedTensors, Products
from xfcost.ledger.matrices import AttentionCore, matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE

Factor = Literal["local", "long"]
FACTORS: Final[tuple[Factor, ...]] = ("local", "long")


class MergedFactors(NamedTuple):
    """Two score matrices, concatenated, then two weighted sums; keys are `key_inner` wide in all heads, values `inner`.

    By factor: groups, queries and keys of its products, pairs that no other factor has, and how it mixes.
    """

    heads: Number
    key_inner: Number
    inner: Number
    products: Mapping[Factor, Products]
    pairs: Mapping[Factor, Number]
    mixing: Mapping[Factor, dict[str, Any]]
    tensors: MergedTensors

    def rows(self) -> Iterator[Operation]:
        """The rows from queries, and keys and values laid out, to the sum of both factors."""
        h, of = self.heads, self.tensors
        entries = {factor: prod(self.products[factor]) for factor in FACTORS}
        padded = prod(self.products["local"][:2])
        queries = padded * self.key_inner
        yield elementwise("scale", "Scale queries 1/√d_k", "multiply", queries, symbol="", tensors=of.scale)
        for factor in FACTORS:
            yield from self._scores(factor, h * entries["local"] if factor == "long" else 0)
        all_entries = h * sum(entries.values())
        joint = self.mixing["long"] | {
            "reads": " + ".join(self.mixing[factor]["reads"] for factor in FACTORS),
            "reads_tokens": sum(self.mixing[factor]["reads_tokens"] for factor in FACTORS),
        }
        facts: dict[str, Any] = {"matrix": matrix(all_entries, all_entries), "tensors": of.join}
        yield move("join", "Join scores of both factors", all_entries, **facts, **joint)
        weights = joint | {"content_dependent": True, "matrix": matrix(all_entries, 2 * all_entries, saved=True)}
        yield elementwise("softmax", "Softmax", "softmax", all_entries, symbol="softmax", **weights)
        for factor in FACTORS:
            macs, title = entries[factor] * self.inner, f"Weighted sum AV ({factor})"
            facts = {"content_dependent": True, "tensors": of.weighted_sum(factor)}
            yield matmul(f"{factor}_weighted_sum", title, macs, **facts, **self.mixing[factor])
        yield elementwise("add", "Add both factors", "add", padded * self.inner, of=("local_weighted_sum", BEFORE))

    def _scores(self, factor: Factor, live_entries: Number) -> Iterator[Operation]:
        """A factor's scores and its mask, `live_entries` of the other being there."""
        (groups, queries, keys), h = self.products[factor], self.heads
        entries = groups * queries * keys
        yield matmul(
            f"{factor}_scores",
            f"Attention scores QKᵀ ({factor})",
            entries * self.key_inner,
            attention_entries=h * entries,
            matrix=matrix(h * entries, live_entries),
            pairs=self.pairs[factor],
            core=AttentionCore(groups * h, queries, keys, self.key_inner // h, self.inner // h),
            content_dependent=True,
            tensors=self.tensors.scores(factor),
            **self.mixing[factor],
        )
        in_place = self.tensors.mask(factor)
        yield Operation(path=f"{factor}_mask", title=f"Mask ({factor})", tensors=in_place, **self.mixing[factor])
