"""Synthetic attention (Synthesizer): attention weights from each token alone, or learned, without QKᵀ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import root_divisor
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    Number,
    Observed,
    Place,
    check_divides,
)
from xfcost.formulas.letters import lettered
from xfcost.formulas.mixers import CausalMixer
from xfcost.program.attention import GLOBAL, join_heads, softmax, split_heads
from xfcost.program.functions import later_masked, product, scores
from xfcost.program.leaves import Weight
from xfcost.program.operations import Functions, Operations, itself
from xfcost.program.symbolic import Tensor

Rank = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
RANK = 8


class Synthesizer(CausalMixer, frozen=True, kw_only=True, tag="synthesizer"):
    """softmax(B)V, where B is not QKᵀ (Tay et al. 2021, §3 and Table 1).

    N tokens, width d, h heads of width d_k. All forms are quadratic in N: B has h·N² entries, and

        value          N·d·h·d_k MACs, (d + β)·h·d_k parameters
        hidden         N·d·h·d_k MACs, (d + β)·h·d_k parameters, of a dense form
        factor_a       N·a·h·d_k MACs, h·(d_k + β)·a parameters, of a factorised dense form
        factor_b       N·c·h·d_k MACs, h·(d_k + β)·c parameters, of a factorised dense form
        synthesis      B, h·N² entries, by form:
                       dense, N²·h·d_k MACs, h·(d_k + β)·N parameters; dense and factorised, 0 MACs, 0 parameters;
                       random, 0 MACs, h·N² parameters; random and factorised, h·N²·k MACs, 2h·N·k parameters
        softmax        h·N² elements
        weighted_sum   N²·h·d_k MACs
        out            N·h·d_k·d MACs

    β is 1 where there is a `projection_bias`, else 0. B is, by `form`:

    - `dense`: W₂·relu(W₁x) of every token alone, the work of QKᵀ
    - `factorized_dense`: the products of a and c = N/a numbers of every token (an outer product, laid out as a row)
    - `random`: h·N² numbers, learned or (trainable: false) drawn once: nothing to compute
    - `factorized_random`: R₁R₂ᵀ with R₁, R₂ of N×k per head. Of low rank, and yet not linear in N: its softmax wants
      all entries

    Random forms do their softmax once for the whole batch. Every form holds for its N only.
    """

    form: Literal["dense", "random", "factorized_dense", "factorized_random"] = "dense"
    """How the attention matrix is computed (Tay et al. 2021, Table 1)."""
    trainable: bool = True
    """Whether a random matrix is learned, or drawn once and fixed."""
    factor: Annotated[Length | None, Letter("k")] = None
    """Of `factorized_dense`: a factor a of N; by default the divisor nearest below √N."""
    rank: Annotated[Rank | None, Letter("k")] = None
    """Of `factorized_random`: the rank k; 8 by default."""

    def check(self, place: Place) -> None:
        super().check(place)
        if not self.trainable and self.form != "random":
            raise ComponentError("trainable", f"only `form: random` has fixed weights, and the form is {self.form!r}")
        if self.factor is not None and self.form != "factorized_dense":
            raise ComponentError("factor", f"only 'factorized_dense' has factors, and the form is {self.form!r}")
        if self.rank is not None and self.form != "factorized_random":
            raise ComponentError("rank", f"only 'factorized_random' has a rank, and the form is {self.form!r}")
        n = place.grid.total
        if self.factor is not None:
            check_divides("factor", self.factor, n, f"the {n} tokens")

    def label(self) -> str:
        name = f"Synthesizer ({self.form.replace('_', ' ')}{'' if self.trainable else ', fixed'})"
        return f"Causal {name}" if self.causal else name

    def factors(self, grid: Grid) -> tuple[Number, Number]:
        """a and b, whose product is N."""
        n = grid.total
        a = self.factor or root_divisor(n)
        return a, n // a

    def in_letters(self, place: Place) -> tuple[Synthesizer, Place]:
        component, lettered_place = super().in_letters(place)
        return msgspec.structs.replace(component, rank=lettered(self.rank or RANK, "k")), lettered_place

    def observed(self, place: Place) -> Observed:
        learned = "its weights are learned, and are tokens of nothing before they meet the values"
        names = ("synthesis", "mask", "softmax") if "random" in self.form else ()
        return Observed(left_out=dict.fromkeys(names, learned))

    titles: ClassVar[Mapping[str, str]] = {
        "factor_a": "First factors",
        "factor_b": "Second factors",
        "hidden": "Hidden layer W₁",
        "relu": "ReLU",
        "weighted_sum": "Weighted sum softmax(B)V",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, inner, alone = place.grid.total, self.inner(place.dim), "dense" in self.form
        mixing: dict[str, Any] = dict(GLOBAL) | {"reads_tokens": n, "content_dependent": alone}
        v = split_heads(t.linear("value", x, inner, bias=self.projection_bias), self.heads)
        entries = self.heads * n * n
        kept = {"attention_entries": entries, "heads": self.heads, "pairs": self.pairs(place.grid)}
        b = self._of_tokens(t, x, place, kept) if alone else self._of_tables(t, n, kept | mixing)
        if self.causal:
            facts = mixing | {"matrix": True, "symbol": "mask", "once": not alone}
            b = t.leaf("mask", later_masked, b, **facts)
        b = t.leaf("softmax", softmax, b, symbol="softmax", matrix=True, **mixing)
        y = t.leaf("weighted_sum", product, b, v, symbol="AV", **mixing)
        return t.linear("out", join_heads(y), place.dim, bias=self.projection_bias)

    def _of_tokens(self, t: Operations, x: Tensor, place: Place, kept: dict[str, Any]) -> Tensor:
        """B computed from every token alone: (B, H, N, N)."""
        n, bias = place.grid.total, self.projection_bias
        hidden = t.linear("hidden", x, self.inner(place.dim), bias=bias)
        hidden = split_heads(t.act("relu", hidden, "relu"), self.heads)
        kept = kept | {"matrix": True}
        if self.form == "dense":
            title = "Weights W₂·relu(W₁x)"
            return t.leaf("synthesis", per_head, hidden, weights=self._maps(hidden, n), title=title, bound=True, **kept)
        a, b = self.factors(place.grid)
        first = t.leaf("factor_a", per_head, hidden, weights=self._maps(hidden, a), bound=self.factor is None)
        second = t.leaf("factor_b", per_head, hidden, weights=self._maps(hidden, b), bound=True)
        return t.leaf("synthesis", products, first, second, title="Products of factors", **kept)

    def _maps(self, hidden: Tensor, outputs: Number) -> list[Weight]:
        """One d_k×outputs map per head of the hidden layer."""
        weight = Weight((self.heads, hidden.shape[-1], outputs), "linear_maps")
        return [weight, *([Weight((self.heads, 1, outputs), "zeros", "bias")] if self.projection_bias else [])]

    def _of_tables(self, t: Operations, n: Number, facts: dict[str, Any]) -> Tensor:
        """B learned or fixed: (H, N, N), the same for all samples."""
        facts = facts | {"once": True}
        if self.form == "random":
            table = Weight((self.heads, n, n), "normal" if self.trainable else "standard", learns=self.trainable)
            return t.leaf("synthesis", itself, weights=[table], title="Table of weights", bound=self.trainable, **facts)
        tables = [Weight((self.heads, n, self.rank or RANK), "low_rank", name) for name in ("left", "right")]
        facts |= {"bound": True, "matrix": True}
        return t.leaf("synthesis", scores, weights=tables, title="Weights R₁R₂ᵀ", **facts)

    def notes(self, place: Place) -> Iterator[str]:
        n = place.grid.total
        layer = (
            "the layer that makes attention weights has one output"
            if "dense" in self.form
            else "the weights have one row"
        )
        yield f"{layer} per token ({n}): another N needs new weights"


def per_head(t: Functions, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear map per head: (B, H, N, K), (H, K, M) -> (B, H, N, M)."""
    y = x @ weight
    return y if bias is None else y + bias


def products(t: Functions, a: Tensor, b: Tensor) -> Tensor:
    """Each first factor times each second factor: (B, H, N, P), (B, H, N, Q) -> (B, H, N, P·Q)."""
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)
