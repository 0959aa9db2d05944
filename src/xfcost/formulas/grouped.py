"""Heads that share keys and values in groups, and positions inside attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from xfcost.formulas.causality import Causal
from xfcost.formulas.component import Heads, Place
from xfcost.formulas.rows import linear, of_input, rotary
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class Grouped(Causal, frozen=True, kw_only=True):
    """h heads of queries over h_kv heads of keys and values, all d_k wide; a key's head is read by h/h_kv of a query.

    Multi-head attention has h_kv = h, grouped-query attention fewer (GQA; Ainslie et al. 2023, §2.2), multi-query
    attention one (MQA; Shazeer 2019). Scores and sums cost the same; projections and what a cache keeps per token,
    2·h_kv·d_k numbers, don't. Where a mechanism lets values have a width of their own, d_v, they take d_v.

        qkv     N·d·(h·d_k + h_kv·d_k + h_kv·d_v) MACs
        rotary  3·N·(h + h_kv)·d_k element-wise FLOPs, with `position: rope`

    RoPE turns pairs of a query's and of a key's columns by angles that grow with their position (Su et al. 2021, §3.2):
    x·cos + x'·sin, x' holding the other column of each pair. The tables of angles are no parameters, and nothing binds
    the model to a length.
    """

    kv_heads: Heads | None = None
    """Number of key and value heads h_kv, which divides h (GQA, MQA); h by default."""
    position: Literal["none", "rope", "alibi"] = "none"
    """`rope` rotates queries and keys by their positions; `alibi` adds a penalty to scores that grows with distance."""
    rope_base: Annotated[float, msgspec.Meta(ge=1, le=1e12)] = 10000.0
    """Base θ of RoPE's angles position·θ^(-2i/d_k); it does not change the cost."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ComponentError(
                "kv_heads",
                f"{self.heads} heads don't divide into {self.kv_heads} groups; it could be {divisors_text(self.heads)}",
            )
        width = self.inner(place.dim) // self.heads
        if self.position == "rope" and width % 2:
            raise ComponentError(
                "position",
                f"rope turns pairs of columns, and a head is {width} wide here; give an even `head_dim`",
            )

    @property
    def shared(self) -> Number:
        """h/h_kv: the heads of queries that read one head of keys and values."""
        return 1 if self.kv_heads is None else self.heads // self.kv_heads

    def kv_inner(self, width: Number) -> Number:
        """h_kv·d_k, the width of all keys of a token."""
        return self._of_kv_heads(self.inner(width))

    def value_inner(self, width: Number) -> Number:
        """h·d_v, the width of what all heads of a token read together."""
        return self.inner(width)

    def kv_width(self, width: Number) -> Number:
        """h_kv·(d_k + d_v), the width of all keys and values of a token: what a cache keeps."""
        return self.kv_inner(width) + self._of_kv_heads(self.value_inner(width))

    def _of_kv_heads(self, inner: Number) -> Number:
        return inner if self.kv_heads is None else inner // self.heads * self.kv_heads

    def projections(self, tokens: Number, width: Number) -> Iterator[Operation]:
        """Queries, keys and values of `tokens` tokens, turned by their positions where those are rotary."""
        wide = self.inner(width) + self.kv_width(width)
        yield of_input(linear("qkv", "Q, K, V projections", tokens, width, wide, bias=self.projection_bias))
        if self.position == "rope":
            yield rotary(tokens, self.inner(width) + self.kv_inner(width))

    def heads_label(self) -> str:
        """What the field calls such heads: `grouped-query `, `multi-query `, or nothing."""
        if self.kv_heads is None or self.kv_heads == self.heads:
            return ""
        return "multi-query " if self.kv_heads == 1 else "grouped-query "
