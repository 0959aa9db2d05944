"""Class attention: the class token reads all tokens, and alone is updated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xfcost.formulas.attention import attention_of
from xfcost.formulas.component import Grid, Number, Operation, Place, check_class_token
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import linear, on_raw_input
from xfcost.formulas.tensors import saving_copies
from xfcost.ledger.tensors import Strided


class ClassAttention(NonCausalMixer, frozen=True, kw_only=True, tag="class_attention"):
    """Softmax attention whose queries are the special tokens alone (CaiT's CA; Touvron et al. 2021, §3).

    N tokens, E special ones among them (one class token in CaiT), width d, h heads of width d_k = d/h. What is read are
    all N; what is changed are the E, and the grid's tokens pass by as they are. Linear in N:

        q             E·d·h·d_k MACs
        k, v          N·d·h·d_k MACs each
        scores        E·N·h·d_k MACs, h·E·N entries kept
        weighted_sum  E·N·h·d_k MACs
        out           E·h·d_k·d MACs

    The feed-forward behind it is {kind: mlp, tokens: class_token}. The public code joins class token and patches once
    per block, and here each of both sub-layers does, which moves N·d elements more.
    """

    short_name = "Class attention"
    non_causal_reason: ClassVar[str] = "the class token reads every token"

    @property
    def special_tokens_only(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        super().check(place)
        check_class_token("kind", place)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total) if token < grid.special else range(0)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.special * grid.total

    def operations(self, place: Place) -> Iterator[Operation]:
        n, special, d = place.grid.total, place.grid.special, place.dim
        inner = self.inner(d)
        q = linear("q", "Q projection (class token)", special, d, inner, bias=self.projection_bias)
        # several special tokens of several samples lie apart
        yield on_raw_input(saving_copies(q, Strided((special, d), n, ((special, 1, 0),))))
        yield on_raw_input(linear("k", "K projection", n, d, inner, bias=self.projection_bias))
        yield on_raw_input(linear("v", "V projection", n, d, inner, bias=self.projection_bias))
        yield from attention_of(self, place, queries=special, operands=("q", "k", "v"))
        yield linear("out", "Output projection W_O (class token)", special, inner, d, bias=self.projection_bias)
