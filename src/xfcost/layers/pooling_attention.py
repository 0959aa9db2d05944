"""Pooling by attention: a few learned vectors read all tokens and replace them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import msgspec

from xfcost.formulas.attention import CrossAttention
from xfcost.formulas.component import (
    Enter,
    Grid,
    Heads,
    Joining,
    Operation,
    Place,
    Residual,
    Sources,
    Width,
    check_heads,
    check_output,
)
from xfcost.formulas.letters import Letter
from xfcost.formulas.rows import elementwise, norm
from xfcost.formulas.tensors import of_input, reading, weights
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, INPUT


class PoolingAttention(Enter, frozen=True, kw_only=True, tag="pooling_attention"):
    """k learned vectors S read N tokens X by multi-head attention; the output is k tokens of the stage's width.

    Set Transformer's PMA (seeds; Lee et al. 2019, §3.2, equation 11), Perceiver's cross-attention (latents; Jaegle et
    al. 2021, §3.1) and Perceiver IO's output queries. N tokens of width d, k vectors of width d', h heads of d_k.

        post      LN(S + MH(S, X, X)): PMA, whose rFF is then the stage's first sub-layer, {kind: dense}
        pre       S + MH(LN(S), LN(X), LN(X)): Perceiver, whose MLP is then the stage's first sub-layer
        res_post  S + LN(MH(S, X, X));  none  MH(S, X, X)

        q         k·d'·h·d_k MACs, once for all samples: it works on weights alone
        kv        N·d·2h·d_k MACs
        core      2·k·N·h·d_k MACs, h·k·N entries kept
        out       k·h·d_k·d' MACs

    PMA's other rFF, on X, is a last block [{kind: dense}] of the stage before (the authors' code has none).
    """

    pools: ClassVar[bool] = True

    count: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter("k")]
    """Number of learned query vectors k (seeds, latents), which is the number of tokens that leave."""
    heads: Heads
    """Number of attention heads h."""
    head_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_k of a head's queries and keys; d'/h by default."""
    projection_bias: bool = True
    """Whether the query, key, value and output projections have biases."""
    output_projection: bool = True
    """Whether there is an output projection W_O; Set Transformer's public code has none."""
    residual: Joining = Residual(place="post")
    """How the attention's output joins the query vectors; not taken from the stage."""

    def inner(self, place: Place) -> Number:
        """h·d_k, the width of all heads together."""
        return place.out_dim if self.head_dim is None else self.heads * self.head_dim

    def check(self, place: Place) -> None:
        check_heads(self.heads, self.head_dim, place.out_dim)
        check_output(self.inner(place), place.out_dim, projected=self.output_projection)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid((self.count,)), place.out_dim

    def reads(self, grid: Grid, token: int) -> Sequence[int]:
        """The input tokens that output `token` reads: all."""
        return range(grid.total)

    def pairs(self, grid: Grid) -> Number:
        return self.count * grid.total

    def sources(self, place: Place) -> Sources:
        return Sources(lambda token: self.reads(place.grid, token), whole=True)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, k, d = place.grid.total, self.count, place.out_dim
        joining = self.residual
        yield Operation(path="seeds", title="Learned queries", params=k * d, tensors=weights((k, d)))
        normed = joining != "none" and joining.place == "pre" and joining.norm != "none"
        if joining != "none" and joining.place == "pre":
            for row in norm(joining.norm, "seeds_norm", k, d):
                titled = msgspec.structs.replace(row, title="Layer norm (learned queries)", once=True)
                yield reading(titled, "seeds")
            for row in norm(joining.norm, "tokens_norm", n, place.dim):
                yield of_input(msgspec.structs.replace(row, title="Layer norm (tokens)"))
        yield from CrossAttention(
            queries=k,
            width=d,
            keys=n,
            memory_width=place.dim,
            inner=self.inner(place),
            heads=self.heads,
            bias=self.projection_bias,
            reads="N",
            fused=place.fused,
            output=self.output_projection,
            learned=True,
            raw_input="neither" if normed else "memory",
            reads_from=("seeds_norm", "tokens_norm") if normed else ("seeds", INPUT),
        ).rows()
        if joining == "none":
            return
        after = list(norm(joining.norm, "norm", k, d)) if joining.place != "pre" else []
        add = elementwise("add", "Residual add", "add", k * d, of=(BEFORE, "seeds"))
        yield from [*after, add] if joining.place == "res_post" else [add, *after]

    def notes(self, place: Place) -> Iterator[str]:
        yield f"{place.grid.total} tokens are pooled into {self.count}: no cost after it grows with N"
