"""Attention over a few rows instead of all keys: projected (Linformer), landmarks (Nyströmformer), inducing points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import greater, round_up
from xfcost.formulas.attention import CrossAttention, attention_of
from xfcost.formulas.component import (
    Grid,
    Length,
    Letter,
    NormKind,
    Number,
    Operation,
    PaddingNote,
    Place,
    check_odd,
    check_output,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import elementwise, linear, matmul, move, norm
from xfcost.formulas.tensors import copied, passed, product, reading, weights
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Copy, Exchanged, Saved, Strided, Tensor, Tensors, merged_heads
from xfcost.mechanisms.full import Full

# Projected values, where one row projects keys and values.
_VALUES: Final = "projected values"


class LowRank(NonCausalMixer, frozen=True, kw_only=True, tag="low_rank"):
    """Linformer: softmax(Q(EᵀK)ᵀ/√d_k) FᵀV with learned E and F of N×k (Wang et al. 2020, §4, equation 7).

    N tokens, width d, h heads of width d_k, rank k.

        qkv               N·d·3h·d_k MACs
        key_projection    N·k·h·d_k MACs: EᵀK, the same weights whatever the input, where E is a table of its own:
                          N·k parameters, or h·N·k parameters
        value_projection  N·k·h·d_k MACs: FᵀV, N·k parameters, or h·N·k parameters, likewise, where F is another
        projection        2·N·k·h·d_k MACs: both, with one table, N·k parameters
        scores            N·k·h·d_k MACs, h·N·k entries kept
        weighted_sum      N·k·h·d_k MACs
        out               N·h·d_k·d MACs

    E and F have a row per token: their parameters grow with N and hold for that N only. By `share` there are 2h tables
    of N·k (none), 2 (headwise), 1 for keys and values (key_value) or 1 for the whole model (layerwise); the work is the
    same. (The package linformer also projects tokens once for both under `share_kv`; the paper shares E and F alone.)
    """

    short_name = "Linformer attention"
    binds_tables: ClassVar[bool] = True

    non_causal_reason: ClassVar[str] = "every projected key and value is a mixture of all tokens"

    rank: Annotated[Length, Letter("k")] = 256
    """Rank k: the number of projected keys and values."""
    share: Literal["none", "headwise", "key_value", "layerwise"] = "headwise"
    """Who shares the projections E and F: no one, a layer's heads, keys and values too, or all layers."""

    def table(self, place: Place) -> str | None:
        """Name of the table shared by the whole model, if any; the name includes the shape."""
        return f"projection_{place.grid.total}x{self.rank}" if self.share == "layerwise" else None

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        name = self.table(place)
        return {name: (place.grid.total, self.rank)} if name else {}

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner = self.inner(d)
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        yield from self._projections(place, inner)
        operands = ("qkv", "projection", _VALUES) if self._one_table else ("qkv", "key_projection", "value_projection")
        core = {"keys": self.rank, "reads": "k", "pairs": None, "operands": operands, "gathered": True}
        yield from attention_of(self, place, **core)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    @property
    def _one_table(self) -> bool:
        """Do keys and values share one?"""
        return self.share in ("key_value", "layerwise")

    def _projections(self, place: Place, inner: Number) -> Iterator[Operation]:
        n = place.grid.total
        macs = n * self.rank * inner
        static: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": n}
        if self._one_table:
            shared = self.table(place)
            title, tensors = "Project keys and values along the sequence EᵀK, EᵀV", self._projected(n, inner, 2)
            row = matmul("projection", title, 2 * macs, tensors=tensors, **static)
            yield msgspec.structs.replace(row, params=0 if shared else n * self.rank, bound=not shared, shared=shared)
            return
        static |= {"params": n * self.rank * (self.heads if self.share == "none" else 1), "bound": True}
        static |= {"tensors": self._projected(n, inner, 1)}
        yield matmul("key_projection", "Project keys along the sequence EᵀK", macs, **static)
        yield matmul("value_projection", "Project values along the sequence FᵀV", macs, **static)

    def _projected(self, tokens: Number, inner: Number, times: int) -> Tensors:
        """Parts of `qkv` are saved; the product with one table merges batch and columns, and copies them.

        With a table per head it merges batch and heads, and copies the tables too, for every sample.
        """
        read = Tensor("qkv", (tokens, inner))
        merged = merged_heads(read.shape, inner, tokens)
        if self.share == "none":
            merged = merged_heads((tokens, inner + self.heads * self.rank), self.heads, tokens)
        writes = (Tensor(OUTPUT, (self.rank, inner)), Tensor(_VALUES, (self.rank, inner)))
        return Tensors((read,) * times, writes[:times], (Saved("qkv", copied=merged),) * times)

    def notes(self, place: Place) -> Iterator[str]:
        n = place.grid.total
        yield f"the projections along the sequence have one row per token ({n}): another N needs new weights"
        if n <= 2 * self.rank:
            yield (
                f"{n} tokens are projected to {self.rank} rows: "
                f"cheaper than full attention only where N exceeds {2 * self.rank}"
            )


class Nystrom(NonCausalMixer, frozen=True, kw_only=True, tag="nystrom"):
    """softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺·softmax(Q̃Kᵀ)·V (Xiong et al. 2021, §3, equation 13).

    N tokens, width d, h heads of width d_k; Q̃ and K̃ are m landmarks, the means of m segments. Tokens are padded at the
    front with zeros to P, a multiple of m, which is projected and attended over, as the public package does.

        qkv               P·d·3h·d_k MACs
        landmarks         2P·h·d_k additions, where tokens are more than landmarks, as in the next five:
        query_scores      P·m·h·d_k MACs, h·P·m entries kept, where N > m
        landmark_scores   m²·h·d_k MACs, h·m² entries kept, where N > m
        key_scores        m·P·h·d_k MACs, h·m·P entries kept, where N > m
        key_weighted_sum  m·P·h·d_k MACs, where N > m
        inverse           4·I·h·m³ MACs, h·m comparisons, where N > m: I steps of an iteration of third order
                          (equation 11), six by default
        query_inverse     h·P·m² MACs, where N > m
        weighted_sum      P·m·h·d_k MACs, or N²·h·d_k MACs
        conv              P·w·h·d_k MACs, h·w parameters, with `conv`: a head's values, mixed over w tokens
        out               N·h·d_k·d MACs

    Where there are no more tokens than landmarks, attention is exact, with the rows of full attention (as transformers
    does where their numbers are equal), P = N:

        scores            N²·h·d_k MACs, h·N² entries kept, where N ≤ m

    The iteration starts from Aᵀ/(‖A‖₁‖A‖∞), per head and sample, ‖A‖∞ = 1. (transformers divides by the largest ‖A‖₁ of
    all heads and samples by default: a sample's result then depends on the other samples of the batch.)
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
        values = t.named("qkv")
        weights = t.weights("key_softmax", t.landmarks, t.tokens)
        tensors = product(weights, values, (t.landmarks, t.inner), None, t.merged(values))
        facts = token_mixing | {"tensors": tensors}
        yield matmul("key_weighted_sum", "Weighted sum softmax(Q̃Kᵀ)V", m * tokens * inner, **facts)
        yield self._inverse(landmark_mixing | {"matrix": matrix(landmark_entries, earlier, saved=True)})
        product_matrix = matrix(token_entries, token_entries + 2 * landmark_entries, saved=True)
        first = t.weights("query_softmax", t.tokens, t.landmarks)
        tensors = product(first, t.weights("inverse", t.landmarks, t.landmarks), first.shape)
        facts = landmark_mixing | {"matrix": product_matrix, "tensors": tensors}
        yield matmul("query_inverse", "softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺", token_entries * m, **facts)
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


Points = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class Inducing(NonCausalMixer, frozen=True, kw_only=True, tag="inducing"):
    """The attention of Set Transformer's ISAB: MH(X, H, H), H = MAB(I, X) (Lee et al. 2019, §3.1, equations 9, 10).

    N tokens X (special ones included), k learned points I, width d, h heads of width d_k. The points read all tokens,

        MAB(I, X) = LN(Z + rFF(Z)), Z = LN(I + MH(I, X, X)), rFF one linear map and a ReLU,

    and every token reads the k answers. With {kind: dense, act: relu} after it, and `residual: {place: post}`, a block
    is ISAB(X) = MAB(X, H).

        points                k·d parameters
        induced_q             k·d·h·d_k MACs, (d + β)·h·d_k parameters, once for all samples: it works on weights only
        induced_kv            N·d·2h·d_k MACs, (d + β)·2h·d_k parameters
        induced_scores        k·N·h·d_k MACs, h·k·N entries kept
        induced_weighted_sum  k·N·h·d_k MACs
        induced_out           k·h·d_k·d MACs, (h·d_k + β)·d parameters, with an `output_projection`
        induced_norm          k·d elements, 2d parameters, where there is a norm
        induced_rff           k·d² MACs, d² + d parameters, with `induce: mab`
        induced_rff_norm      k·d elements, 2d parameters, where there is a norm
        q                     N·d·h·d_k MACs
        kv                    k·d·2h·d_k MACs
        scores                N·k·h·d_k MACs, h·N·k entries kept
        weighted_sum          N·k·h·d_k MACs
        out                   N·h·d_k·d MACs, with an `output_projection`

    Queries are scaled by 1/√d_k per head; the authors' code divides by √d, and adds the projected queries instead of
    I and X: the same cost.
    """

    non_causal_reason: ClassVar[str] = "every point reads all tokens, later ones too"

    points: Annotated[Points, Letter("k")]
    """Number of inducing points k."""
    induce: Literal["mab", "attention"] = "mab"
    """How the points read: by a whole MAB, or only by its attention MH(I, X, X) (package isab-pytorch)."""
    norm: NormKind = "layer_norm"
    """Norm of the points' MAB; the authors' code has none by default."""
    output_projection: bool = True
    """Whether both attentions have an output projection W_O; the authors' code has none."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_output(self.inner(place.dim), place.dim, projected=self.output_projection)

    def label(self) -> str:
        return f"Induced attention ({self.points} points)"

    def operations(self, place: Place) -> Iterator[Operation]:
        n, k, d = place.grid.total, self.points, place.dim
        shared: dict[str, Any] = {
            "width": d,
            "memory_width": d,
            "inner": self.inner(d),
            "heads": self.heads,
            "bias": self.projection_bias,
            "output": self.output_projection,
            "fused": place.fused,
        }
        yield Operation(path="points", title="Inducing points", params=k * d, tensors=weights((k, d)))
        induced = [
            *CrossAttention(
                queries=k,
                keys=n,
                reads="N",
                learned=True,
                raw_input="memory",
                prefix="induced_",
                label="points read tokens",
                reads_from=("points", INPUT),
                **shared,
            ).rows()
        ]
        if self.induce == "mab":
            induced += self._rest_of_mab(d)
        yield from induced
        shared["reads_from"] = (INPUT, induced[-1].path)
        yield from CrossAttention(queries=n, keys=k, reads="k", label="tokens read points", **shared).rows()

    def _rest_of_mab(self, d: Number) -> Iterator[Operation]:
        """LN(Z + rFF(Z)), Z = LN(I + …), on k points."""
        k = self.points
        yield elementwise("induced_add", "Residual add (points)", "add", k * d, of=(BEFORE, "points"))
        yield from norm(self.norm, "induced_norm", k, d)
        both = ("induced_add" if self.norm == "none" else "induced_norm", "induced_act")
        yield linear("induced_rff", "rFF (points)", k, d, d)
        yield elementwise("induced_act", "rFF activation (points)", "relu", k * d)
        yield elementwise("induced_rff_add", "rFF residual add (points)", "add", k * d, of=both)
        yield from norm(self.norm, "induced_rff_norm", k, d)

    def notes(self, place: Place) -> Iterator[str]:
        if self.points >= place.grid.total:
            yield (
                f"{self.points} inducing points for {place.grid.total} tokens: "
                "full attention reads as much with less work"
            )
