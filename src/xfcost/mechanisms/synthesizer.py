"""Synthetic attention (Synthesizer): attention weights from each token alone, or learned, without QKᵀ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.arithmetic import root_divisor
from xfcost.formulas.attention import masked
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    Number,
    Observed,
    Operation,
    Place,
    check_divides,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.letters import lettered
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.rows import elementwise, linear, matmul, move, on_raw_input, with_gradient_operands
from xfcost.formulas.tensors import product, weights
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Strided, Tensor, Tensors, merged_heads

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner = self.inner(d)
        mixing: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": n}
        mixing["content_dependent"] = alone = "dense" in self.form
        kept = {"attention_entries": self.heads * n * n, "heads": self.heads, "pairs": self.pairs(place.grid)}
        yield on_raw_input(linear("value", "Values", n, d, inner, bias=self.projection_bias))
        yield from self._of_tokens(place, inner, kept) if alone else self._of_tables(n, kept, mixing)
        once = not alone
        entries = self.heads * n * n
        live_entries = 0 if self.form == "random" else entries  # a table is a parameter
        if self.causal:
            facts = mixing | {"matrix": matrix(entries, live_entries), "tensors": masked((self.heads, n, n), (n, n))}
            yield move("mask", "Mask", once=once, symbol="mask", **facts)
            live_entries = entries
        weights = mixing | {"matrix": matrix(entries, live_entries, saved=alone or self.trainable)}
        yield elementwise("softmax", "Softmax", "softmax", entries, once=once, symbol="softmax", **weights)
        # AV; weights that are the same for all samples are copied for each
        b, values = Tensor(BEFORE, (self.heads, n, n)), Tensor("value", (n, inner))
        repeated = None if alone else Strided(b.shape, 1, ((self.heads, 0, 1),), repeated=True)
        merged = merged_heads(values.shape, self.heads, n)
        mixing["tensors"] = product(b, values, values.shape, repeated, merged)
        weighted = matmul("weighted_sum", "Weighted sum softmax(B)V", n * n * inner, symbol="AV", **mixing)
        yield weighted if self.trainable else with_gradient_operands(weighted, 1)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def _of_tokens(self, place: Place, inner: Number, kept: dict[str, Any]) -> Iterator[Operation]:
        """B computed from every token alone."""
        n = place.grid.total
        yield on_raw_input(linear("hidden", "Hidden layer W₁", n, place.dim, inner, bias=self.projection_bias))
        yield elementwise("relu", "ReLU", "relu", n * inner)
        if self.form == "dense":
            row = self._per_head("synthesis", "Weights W₂·relu(W₁x)", n, inner, n)
            yield msgspec.structs.replace(row, bound=True, matrix=matrix(self.heads * n * n), **kept)
            return
        a, b = self.factors(place.grid)
        first = self._per_head("factor_a", "First factors", n, inner, a)
        yield msgspec.structs.replace(first, bound=self.factor is None)
        yield msgspec.structs.replace(self._per_head("factor_b", "Second factors", n, inner, b), bound=True)
        entries = self.heads * n * n
        factors = Tensor("factor_a", (n, self.heads * a)), Tensor("factor_b", (n, self.heads * b))
        kept |= {"matrix": matrix(entries), "tensors": product(*factors, (entries,))}
        yield elementwise("synthesis", "Products of factors", "multiply", entries, **kept)

    def _per_head(self, path: str, title: str, tokens: Number, inner: Number, outputs: Number) -> Operation:
        """One d_k×outputs map per head of the hidden layer; merging batch and heads it copies both operands."""
        read = Tensor("relu", (tokens, inner))
        copied = merged_heads((inner, tokens + outputs), self.heads, tokens)
        tensors = Tensors((read,), (Tensor(OUTPUT, (tokens, self.heads * outputs)),), (Saved("relu", copied=copied),))
        macs, biases = tokens * inner * outputs, self.heads * outputs if self.projection_bias else 0
        flops = 2 * macs + tokens * biases * COSTS["add"]
        facts = {"params": inner * outputs + biases, "tensors": tensors}
        return Operation(path=path, title=title, macs=macs, flops=flops, **facts)

    def _of_tables(self, n: Number, kept: dict[str, Any], mixing: dict[str, Any]) -> Iterator[Operation]:
        """B learned or fixed."""
        if self.form == "random":
            params = self.heads * n * n if self.trainable else 0
            kept["tensors"] = msgspec.structs.replace(weights((self.heads, n, n)), beside=False)
            row = Operation(path="synthesis", title="Table of weights", params=params, once=True, **kept, **mixing)
            yield msgspec.structs.replace(row, bound=self.trainable)
            return
        rank = self.rank or RANK
        macs, params = self.heads * n * n * rank, 2 * self.heads * n * rank
        table_facts = {"params": params, "bound": True, "once": True, "matrix": matrix(self.heads * n * n)}
        table_facts["tensors"] = Tensors((), (Tensor(OUTPUT, (self.heads, n, n)),))
        yield matmul("synthesis", "Weights R₁R₂ᵀ", macs, **table_facts, **kept | mixing)

    def notes(self, place: Place) -> Iterator[str]:
        n = place.grid.total
        layer = (
            "the layer that makes attention weights has one output"
            if "dense" in self.form
            else "the weights have one row"
        )
        yield f"{layer} per token ({n}): another N needs new weights"
