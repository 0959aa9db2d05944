"""Grouped-query and multi-query heads, with rotary or ALiBi positions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from xfcost.formulas.causal_mixers import CausalMixer
from xfcost.formulas.component import ComponentError, Heads, Number, Operation, Place, divisors_text
from xfcost.formulas.rows import linear, on_raw_input, rotary


class GroupedQueryMixer(CausalMixer, frozen=True, kw_only=True):
    """h query heads over h_kv key and value heads of width d_k: h/h_kv query heads share one key head.

    Multi-head attention has h_kv = h, grouped-query attention fewer (GQA; Ainslie et al. 2023, §2.2), multi-query
    attention one (MQA; Shazeer 2019). Scores and weighted sums cost the same; the projections and the KV cache,
    2·h_kv·d_k numbers per token, shrink. Values may have a width d_v of their own.

        qkv     N·d·(h·d_k + h_kv·d_k + h_kv·d_v) MACs
        rotary  3·N·(h + h_kv)·d_k element-wise FLOPs, with `position: rope`

    RoPE rotates pairs of columns of queries and keys by angles that grow with the position (Su et al. 2021, §3.2):
    x·cos + x'·sin, x' holding the other column of each pair. The angles are buffers, and no length is fixed.
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
                f"rope rotates pairs of columns; expected an even head width, got {width}: give an even `head_dim`",
            )

    @property
    def shared(self) -> Number:
        """h/h_kv: query heads per key and value head."""
        return 1 if self.kv_heads is None else self.heads // self.kv_heads

    def kv_inner(self, width: Number) -> Number:
        """h_kv·d_k, the keys of a token."""
        return self._of_kv_heads(self.inner(width))

    def value_inner(self, width: Number) -> Number:
        """h·d_v, the width of the weighted sums of all heads."""
        return self.inner(width)

    def kv_width(self, width: Number) -> Number:
        """h_kv·(d_k + d_v), the keys and values of a token: its KV cache."""
        return self.kv_inner(width) + self._of_kv_heads(self.value_inner(width))

    def _of_kv_heads(self, inner: Number) -> Number:
        return inner if self.kv_heads is None else inner // self.heads * self.kv_heads

    def projections(self, tokens: Number, width: Number) -> Iterator[Operation]:
        """Projections to queries, keys and values of `tokens` tokens, and rotary positions."""
        outputs = self.inner(width) + self.kv_width(width)
        yield on_raw_input(linear("qkv", "Q, K, V projections", tokens, width, outputs, bias=self.projection_bias))
        if self.position == "rope":
            yield rotary(tokens, self.inner(width), self.kv_inner(width))

    def heads_label(self) -> str:
        """`grouped-query `, `multi-query `, or nothing: for the label."""
        if self.kv_heads is None or self.kv_heads == self.heads:
            return ""
        return "multi-query " if self.kv_heads == 1 else "grouped-query "
