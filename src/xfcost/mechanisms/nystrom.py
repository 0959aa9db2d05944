"""Nyström attention: softmax attention approximated by m landmarks, the means of m segments (Nyströmformer)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import greater, round_up
from xfcost.formulas.component import Grid, Length, Letter, Number, Operation, PaddingNote, Place, check_odd
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import elementwise, linear, matmul, move
from xfcost.formulas.tensors import copied, passed, product, reading
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import OUTPUT, Copy, Exchanged, Saved, Strided, Tensor, Tensors, merged_heads
from xfcost.mechanisms.full import Full


class Nystrom(NonCausalMixer, frozen=True, kw_only=True, tag="nystrom"):
    """softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺·softmax(Q̃Kᵀ)·V (Xiong et al. 2021, §3, equation 13).

    N tokens, width d, h heads of width d_k; Q̃ and K̃ are m landmarks, the means of m segments. Tokens are padded at the
    front with zeros to P, a multiple of m, which is projected and attended over, as the public package does.

        qkv               P·d·3h·d_k MACs
        landmarks         2P·h·d_k elements averaged
        query_scores      P·m·h·d_k MACs, h·P·m entries kept
        landmark_scores   m²·h·d_k MACs, h·m² entries
        key_scores        m·P·h·d_k MACs, h·m·P entries
        inverse           4·6·h·m³ MACs: six steps of an iteration of third order (equation 11)
        query_inverse     h·P·m² MACs
        key_weighted_sum  m·P·h·d_k MACs
        weighted_sum      P·m·h·d_k MACs
        conv              P·w·h·d_k MACs: every head's values, mixed over w tokens by its own w weights
        out               N·h·d_k·d MACs

    Where there are no more tokens than landmarks, attention is exact, with the rows of full attention (as transformers
    does where their numbers are equal).

    The iteration starts from Aᵀ/(‖A‖₁‖A‖∞), per head and sample, ‖A‖∞ = 1. (transformers divides by the largest ‖A‖₁ of
    all heads and samples unless told otherwise: a sample's result then depends on the others beside it.)
    """

    short_name = "Nyström attention"
    non_causal_reason: ClassVar[str] = "every landmark is a mean of tokens, and the inverse mixes all landmarks"

    landmarks: Annotated[Length, Letter("k")] = 64
    """Number of landmarks m, each the mean of a segment of tokens."""
    conv: Annotated[Annotated[int, msgspec.Meta(ge=1, le=2**16)] | None, Letter("w")] = 65
    """Kernel size w of the depthwise convolution over the values, in tokens, odd; null leaves it out."""
    iterations: Annotated[int, msgspec.Meta(ge=1, le=1000), Letter("i")] = 6
    """Steps of the iteration that computes the pseudo-inverse (equation 11)."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.conv is not None:
            check_odd("conv", self.conv)

    def exact(self, grid: Grid) -> bool:
        """Are there no more tokens than landmarks?"""
        return not greater(grid.total - self.landmarks, 0)

    def padded(self, grid: Grid) -> Number:
        """P: whole segments, one per landmark."""
        return grid.total if self.exact(grid) else round_up(grid.total, self.landmarks)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, padded = place.grid.total, place.dim, self.padded(place.grid)
        inner = self.inner(d)
        if not self.exact(place.grid):
            whole = padded == n
            tensors = passed((n, d)) if whole else copied((n, d), (padded, d))
            yield move("pad", "Pad to whole segments", 0 if whole else padded * d, tensors=tensors)
        yield linear("qkv", "Q, K, V projections", padded, d, 3 * inner, bias=self.projection_bias)
        if self.exact(place.grid):
            core = [*Full(heads=self.heads, head_dim=self.head_dim).core(place)]
        else:
            core = [*self._approximate(n, padded, inner)]
        if self.conv is not None:
            core += self._convolution(padded, inner, self.conv, core[-1].path)
        yield from core[:-1]
        # the heads are joined, of the tokens without padding; a fused kernel's lie beside each other
        joined: Copy = Exchanged((n, inner), (self.heads, n))
        if self.heads == 1 and n != padded:  # several samples are copied
            joined = Strided((n, inner), padded, ((n, 1, 0),))
        yield core[-1] if core[-1].fused else reading(core[-1], rearranged=joined)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def _approximate(self, n: Number, tokens: Number, inner: Number) -> Iterator[Operation]:
        """The rows of n tokens, with their padding `tokens`."""
        m, h = self.landmarks, self.heads
        content: dict[str, Any] = {"mixing": "global", "content_dependent": True, "heads": h}
        landmark_mixing: dict[str, Any] = content | {"reads": "k", "reads_tokens": m}
        token_mixing: dict[str, Any] = content | {"reads": "N", "reads_tokens": n}
        t = _NystromTensors(tokens, m, h, inner)
        elements = 2 * tokens * inner
        title = "Scale queries and keys 1/d_k^¼"
        writes = msgspec.structs.replace(t.named("scale"), name=OUTPUT), t.named(_SCALED_KEYS)
        tensors = Tensors((t.named("qkv"),) * 2, writes)
        yield elementwise("scale", title, "multiply", elements, symbol="", tensors=tensors)
        writes = msgspec.structs.replace(t.named("landmarks"), name=OUTPUT), t.named(_LANDMARK_KEYS)
        tensors = Tensors((t.named("scale"), t.named(_SCALED_KEYS)), writes)
        segment = {"mixing": "global", "reads": "N/k", "reads_tokens": tokens // m, "tensors": tensors}
        yield elementwise("landmarks", "Means of segments Q̃, K̃", "mean", 2 * tokens * inner, **segment)
        token_entries, landmark_entries = h * tokens * m, h * m * m
        facts = landmark_mixing | {"tensors": t.scores("scale", _LANDMARK_KEYS)}
        yield from _weights("query", "QK̃ᵀ", token_entries, tokens * m * inner, facts)
        facts = landmark_mixing | {"tensors": t.scores("landmarks", _LANDMARK_KEYS)}
        yield from _weights("landmark", "Q̃K̃ᵀ", landmark_entries, m * m * inner, facts, other_entries=token_entries)
        earlier = token_entries + landmark_entries
        facts = token_mixing | {"tensors": t.scores("landmarks", _SCALED_KEYS)}
        yield from _weights("key", "Q̃Kᵀ", token_entries, m * tokens * inner, facts, other_entries=earlier)
        yield self._inverse(landmark_mixing | {"matrix": matrix(landmark_entries, earlier, saved=True)})
        product_matrix = matrix(token_entries, token_entries + 2 * landmark_entries, saved=True)
        first = t.weights("query_softmax", t.tokens, t.landmarks)
        tensors = product(first, t.weights("inverse", t.landmarks, t.landmarks), first.shape)
        facts = landmark_mixing | {"matrix": product_matrix, "tensors": tensors}
        yield matmul("query_inverse", "softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺", token_entries * m, **facts)
        values = t.named("qkv")
        weights = t.weights("key_softmax", t.landmarks, t.tokens)
        tensors = product(weights, values, (t.landmarks, t.inner), None, t.merged(values))
        facts = token_mixing | {"tensors": tensors}
        yield matmul("key_weighted_sum", "Weighted sum softmax(Q̃Kᵀ)V", m * tokens * inner, **facts)
        weights = t.weights("query_inverse", t.tokens, t.landmarks)
        tensors = product(weights, t.named("key_weighted_sum"), (t.tokens, t.inner))
        facts = landmark_mixing | {"symbol": "AV", "tensors": tensors}
        yield matmul("weighted_sum", "Weighted sum of the landmarks' values", tokens * m * inner, **facts)

    def _inverse(self, mixing: dict[str, Any]) -> Operation:
        """Z ← ¼Z(13I - AZ(15I - AZ(7I - AZ))), from Aᵀ over its largest column sum."""
        entries = self.heads * self.landmarks * self.landmarks
        macs = 4 * self.iterations * entries * self.landmarks
        step_flops = 3 * COSTS["add"] + COSTS["multiply"]
        work = entries * (COSTS["sum"] + COSTS["multiply"] + self.iterations * step_flops)
        title = "Pseudo-inverse of softmax(Q̃K̃ᵀ), iterated"
        # Of A the column sums and their maximum are saved, and six matrices a step: Z, AZ, two inner factors, ¼Z, …
        a = Tensor("landmark_softmax", (self.heads, self.landmarks, self.landmarks))
        made = (
            Tensor("steps", (6 * self.iterations, *a.shape)),
            Tensor("sums", (self.heads, self.landmarks)),
            Tensor("most", (self.heads,)),
        )
        mixing["tensors"] = Tensors((a,), (Tensor(OUTPUT, a.shape),), (Saved(a.name),), made)
        return matmul("inverse", title, macs, work=work, comparisons=self.heads * self.landmarks, **mixing)

    def _convolution(self, tokens: Number, inner: Number, size: int, attended: str) -> Iterator[Operation]:
        """The convolution of the values, and its sum with what the row `attended` gives."""
        values = Tensors((Tensor("qkv", (tokens, inner)),), (Tensor(OUTPUT, (tokens, inner)),), (Saved("qkv"),))
        local_facts: dict[str, Any] = {
            "mixing": "local",
            "reads": "w",
            "reads_tokens": size,
            "params": self.heads * size,
            "tensors": values,
        }
        yield matmul("conv", "Convolution of the values", tokens * size * inner, **local_facts)
        yield elementwise("add", "Add the convolution", "add", tokens * inner, of=(attended, "conv"))

    def notes(self, place: Place) -> Iterator[str]:
        n, padded = place.grid.total, self.padded(place.grid)
        if self.exact(place.grid):
            yield f"{n} tokens are no more than {self.landmarks} landmarks: attention is exact, quadratic in N"
        elif padded != n:
            yield PaddingNote(
                f"{n} tokens padded at the front to {padded}, {self.landmarks} segments of {padded // self.landmarks}: "
                f"{padded - n} padding tokens are projected and attended over, and counted"
            )


def _weights(
    path: str, factors: str, entries: Number, macs: Number, mixing: dict[str, Any], *, other_entries: Number = 0
) -> Iterator[Operation]:
    """Scores and softmax of one of the three products; earlier matrices of `other_entries` are alive."""
    first, second = matrix(entries, other_entries), matrix(entries, entries + other_entries, saved=True)
    yield matmul(f"{path}_scores", f"Scores {factors}", macs, attention_entries=entries, matrix=first, **mixing)
    mixing = mixing | {"matrix": second, "tensors": None}
    yield elementwise(f"{path}_softmax", f"Softmax of {factors}", "softmax", entries, **mixing)


# Beside the rows' first outputs.
_SCALED_KEYS: Final = "scaled keys"
_LANDMARK_KEYS: Final = "landmark keys"


class _NystromTensors(NamedTuple):
    """P `tokens`, m `landmarks`, h `heads` of the width `inner` together; products copy heads beside each other."""

    tokens: Number
    landmarks: Number
    heads: Number
    inner: Number

    def named(self, name: str) -> Tensor:
        """Queries, keys, or their landmarks."""
        tokens = self.landmarks if name in ("landmarks", _LANDMARK_KEYS, "key_weighted_sum") else self.tokens
        return Tensor(name, (tokens, self.inner))

    def merged(self, read: Tensor) -> Strided | None:
        """Means have their heads apart, and are not copied."""
        landmarks = read.name in ("landmarks", _LANDMARK_KEYS)
        return None if landmarks else merged_heads(read.shape, self.heads, read.shape[0])

    def weights(self, name: str, rows: Number, columns: Number) -> Tensor:
        return Tensor(name, (self.heads, rows, columns))

    def scores(self, queries: str, keys: str) -> Tensors:
        """QKᵀ."""
        q, k = self.named(queries), self.named(keys)
        return product(q, k, (self.heads, q.shape[0], k.shape[0]), self.merged(q), self.merged(k))
