"""The core of relative attention: scores by content and by distance (Transformer-XL, Funnel Transformer)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from xfcost.formulas.attention import DenseAttention, masked
from xfcost.formulas.component import Number, Operation
from xfcost.formulas.rows import elementwise, linear, matmul, move, with_gradient_operands
from xfcost.formulas.tensors import product, view
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Strided, Tensor, Tensors, merged_heads


class RelativeAttention(NamedTuple):
    """softmax(((Q+u)Kᵀ + shift((Q+v)(R·W_R)ᵀ))/√d_k)V, R one sinusoidal encoding per distance, T = `encodings`.

        r                T·d·inner MACs, once for the whole batch
        position_scores  n·T·inner MACs, h·n·T entries; the shift is a view of them
        scores           n·m·inner MACs, h·n·m entries
        weighted_sum     n·m·inner MACs

    Dai et al. 2019, §3.3. Fused, the position scores are the kernel's bias.
    """

    queries: Number
    keys: Number
    encodings: Number
    dim: Number
    heads: Number
    inner: Number
    reads: str
    pairs: Number
    fused: bool
    masked: bool = False
    share: str | None = None
    terms: tuple[Operation, ...] = ()
    """Further rows on the position scores, which give a matrix of queries × keys."""
    by_distance: bool = False
    """Have position scores more columns than keys? They are then no attention entries, and yet take memory."""

    @property
    def _mixing(self) -> dict[str, Any]:
        return {"mixing": "global", "reads": self.reads, "reads_tokens": self.keys}

    @property
    def _position_entries(self) -> Number:
        return self.heads * self.queries * self.encodings

    def rows(self) -> Iterator[Operation]:
        """The rows from queries, keys and values to weighted sums."""
        project = linear("r", "Projection W_R of relative positions", self.encodings, self.dim, self.inner, bias=False)
        sinusoids = Tensor("sinusoids", (self.encodings, self.dim), once=True, held=True)
        tensors = Tensors((sinusoids,), (Tensor(OUTPUT, (self.encodings, self.inner)),))
        project = msgspec.structs.replace(project, once=True, tensors=tensors)
        yield with_gradient_operands(project, 1)  # sinusoids are fixed
        yield from self._position_scores()
        yield from self.terms
        entries = self.heads * self.queries * self.keys
        other_entries = entries if self.terms else self._position_entries
        if self.masked and self.fused:
            mask = matrix(entries, other_entries, saved=True)
            tensors = masked((self.heads, self.queries, self.keys), (self.queries, self.keys))
            yield Operation(path="mask", title="Mask", matrix=mask, symbol="mask", tensors=tensors, **self._mixing)
            other_entries += entries
        sizes = (self.queries, self.keys, self.heads, self.inner, self.pairs, self.fused)
        core = DenseAttention(*sizes, reads=self.reads, biased=True, masked=self.masked, other_entries=other_entries)
        operands = ("content_bias", "kv", "kv")
        yield from msgspec.structs.replace(core, operands=operands, bias=Tensor(self._bias, ())).rows()

    @property
    def _bias(self) -> str:
        """The row that gives the core its bias."""
        if self.masked and self.fused:
            return "mask"
        return self.terms[-1].path if self.terms else "position_shift"

    def _position_scores(self) -> Iterator[Operation]:
        """Q+u, Q+v, and (Q+v)(R·W_R)ᵀ brought to the places of its keys."""
        elements, entries = self.queries * self.inner, self._position_entries
        bias: dict[str, Any] = {"params": 0 if self.share else self.inner, "shared": self.share}
        bias["of"] = ("q",)
        yield elementwise("content_bias", "Queries + u, for the content", "add", elements, **bias)
        yield elementwise("position_bias", "Queries + v, for the positions", "add", elements, **bias)
        yield elementwise("position_scale", "Scale queries 1/√d_k, for the positions", "multiply", elements)
        kept = self.fused and not self.masked and not self.terms  # a fused kernel keeps its bias
        facts = {"heads": self.heads, "attention_entries": 0 if self.by_distance else entries}
        facts |= self._mixing | {"content_dependent": True, "matrix": matrix(entries, saved=kept)}
        # QRᵀ; the encodings, the same for all samples, are copied for each
        n, heads = self.queries, self.heads
        q, r = Tensor(BEFORE, (n, self.inner)), Tensor("r", (self.encodings, self.inner), once=True)
        copies = merged_heads(q.shape, heads, n), Strided(r.shape, 1, ((heads, 0, 1),), repeated=True)
        facts["tensors"] = product(q, r, (heads, n, self.encodings), *copies)
        yield matmul("position_scores", "Position scores QRᵀ", elements * self.encodings, **facts)
        tokens = self.heads, self.queries
        shifted = view((*tokens, self.encodings), (*tokens, self.keys))
        yield move("position_shift", "Relative shift", tensors=shifted, **self._mixing)
