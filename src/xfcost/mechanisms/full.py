"""Full softmax attention: every token reads every token (or, causal, every token up to itself)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from xfcost.arithmetic import Number
from xfcost.errors import PageError
from xfcost.grid import Grid
from xfcost.ledger import Operation
from xfcost.mechanisms.attention import attention_core
from xfcost.mechanisms.base import Causal, Place, check_output
from xfcost.mechanisms.rows import linear


class Full(Causal, frozen=True, kw_only=True, tag="full"):
    """Multi-head scaled dot-product self-attention (Vaswani et al. 2017, §3.2).

    N tokens (extra ones included), width d, h heads of width d_k = d/h.

        qkv           N·d·3h·d_k MACs, 3·d·h·d_k + 3h·d_k parameters
        scores        N²·h·d_k MACs, h·N² entries kept
        softmax       h·N² elements
        weighted_sum  N²·h·d_k MACs
        out           N·h·d_k·d MACs, h·d_k·d + d parameters

    Causal attention computes the same dense product and masks it; `pairs` tells how many scores survive, N(N+1)/2.

    Talking heads (Shazeer et al. 2020, §2; CaiT) mix the heads of every pair of tokens, before and after the softmax:

        proj_l, proj_w  N²·h² MACs, h² + h parameters each

    They stand where a fused kernel has no place for them, and where no tile of one head can be finished alone. Never
    causal: the bias of proj_w gives every pair a weight.
    """

    output_projection: bool = True
    """W_O; false leaves it out (Set Transformer's public code)."""
    talking_heads: bool = False

    def check(self, place: Place) -> None:
        super().check(place)
        if self.causal and self.talking_heads:
            raise PageError(
                "talking_heads",
                "the bias behind the softmax gives later tokens a weight too, and causal attention can give them none; "
                "leave talking_heads out, or write causal: false",
            )
        check_output(self.inner(place.dim), place.dim, projected=self.output_projection)

    def label(self) -> str:
        return "Causal self-attention" if self.causal else "Self-attention"

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(token + 1) if self.causal else range(grid.total)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        n = grid.total
        return n * (n + 1) // 2 if self.causal else n * n

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner = self.inner(d)
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        yield from self.core(place)
        if self.output_projection:
            yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def core(self, place: Place) -> Iterator[Operation]:
        """The rows between the projections."""
        n = place.grid.total
        rows = attention_core(
            queries=n,
            keys=n,
            heads=self.heads,
            inner=self.inner(place.dim),
            mixing="global",
            reads="N",
            pairs=self.pairs(place.grid),
            fused=place.fused and not self.talking_heads,
            masked=bool(self.causal),
        )
        return self._talking(rows, n) if self.talking_heads else rows

    def _talking(self, rows: Iterable[Operation], n: Number) -> Iterator[Operation]:
        """`rows` of an eager core, and between them how the heads talk."""
        talk = {"scores": ("proj_l", "before the softmax"), "softmax": ("proj_w", "after the softmax")}
        for row in rows:
            # No tile of one head is worth telling the traffic of: every head waits for all of them.
            yield msgspec.structs.replace(row, core=None)
            if row.path in talk:
                path, where = talk[row.path]
                mixed = linear(path, f"Talking heads {where}", n * n, self.heads, self.heads)
                like = {"mixing": row.mixing, "reads": row.reads, "reads_tokens": n, "heads": row.heads}
                yield msgspec.structs.replace(mixed, **like, content_dependent=True)

    def notes(self, place: Place) -> Iterator[str]:
        if self.talking_heads:
            yield (
                "talking heads mix the heads' scores before and after the softmax, where a fused kernel has no place "
                "for them: this attention runs eager, asked for or not, and keeps its matrices; "
                "its main-memory traffic is not told"
            )
