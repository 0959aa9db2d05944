"""Attention over a few rows instead of all keys: projected (Linformer), landmarks (Nyströmformer), inducing points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import greater, round_up
from xfcost.formulas.component import (
    Grid,
    Length,
    Letter,
    NormKind,
    Number,
    PaddingNote,
    Place,
    check_odd,
    check_output,
)
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.program.attention import GLOBAL, attend, attend_to, join_heads, softmax, split_heads
from xfcost.program.functions import added, multiplied, padded, product, scores
from xfcost.program.leaves import HeadConv, Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


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

    titles: ClassVar[Mapping[str, str]] = {
        "key_projection": "Project keys along the sequence EᵀK",
        "projection": "Project keys and values along the sequence EᵀK, EᵀV",
        "value_projection": "Project values along the sequence FᵀV",
    }

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner = self.inner(place.dim)
        parts = t.linear("qkv", x, 3 * inner, bias=self.projection_bias).chunk(3, -1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        if self.share in ("key_value", "layerwise"):
            k, v = (self._projected(t, "projection", part, self.table(place)) for part in (k, v))
        else:
            k, v = self._projected(t, "key_projection", k), self._projected(t, "value_projection", v)
        y = attend(t, q, k, v, fused=place.fused, pairs=None, mixing={"mixing": "global", "reads": "k"})
        return t.linear("out", join_heads(y), place.dim, bias=self.projection_bias)

    def _projected(self, t: Operations, name: str, x: Tensor, shared: str | None = None) -> Tensor:
        """Eᵀx along the tokens: (B, H, N, K) -> (B, H, R, K)."""
        heads, tokens = x.shape[1:3]
        shape = (tokens, self.rank) if self.share != "none" else (heads, tokens, self.rank)
        table = Weight(shape, "low_rank", shared=shared)
        facts = {**GLOBAL, "reads_tokens": tokens, "bound": shared is None}
        return t.leaf(name, projected, x, weights=(table,), **facts)

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

    titles: ClassVar[Mapping[str, str]] = {
        "add": "Add the convolution",
        "conv": "Convolution of the values",
        "inverse": "Pseudo-inverse of softmax(Q̃K̃ᵀ), iterated",
        "landmarks": "Means of segments Q̃, K̃",
        "pad": "Pad to whole segments",
        "query_inverse": "softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺",
        "scale": "Scale queries and keys 1/d_k^¼",
    }

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, exact = place.grid.total, self.exact(place.grid)
        more = self.padded(place.grid) - n
        if not exact:
            x = t.leaf("pad", padded, x, options={"before": more})
        parts = t.linear("qkv", x, 3 * self.inner(place.dim), bias=self.projection_bias).chunk(3, -1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        if exact:
            y = attend(t, q, k, v, fused=place.fused, pairs=self.pairs(place.grid))
        else:
            y = self._by_landmarks(t, q, k, v, n)
        if self.conv is not None:
            facts = {"mixing": "local", "reads": "w", "reads_tokens": self.conv}
            y = t.leaf("add", added, y, t.run("conv", HeadConv(self.heads, self.conv), v, **facts))
        return t.linear("out", join_heads(y.narrow(2, more, n)), place.dim, bias=self.projection_bias)

    def _by_landmarks(self, t: Operations, q: Tensor, k: Tensor, v: Tensor, n: Number) -> Tensor:
        """softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺·softmax(Q̃Kᵀ)·V of n tokens with their padding: (B, H, P, K)."""
        m, h, tokens = self.landmarks, self.heads, q.shape[2]
        of_landmarks: dict[str, Any] = {"mixing": "global", "reads": "k", "reads_tokens": m, "heads": h}
        of_landmarks["content_dependent"] = True
        of_tokens = of_landmarks | {"reads": "N", "reads_tokens": n}
        factor = {"factor": float(q.shape[-1]) ** -0.25}
        q, k = (t.leaf("scale", multiplied, x, options=factor, symbol="") for x in (q, k))
        segment = {"mixing": "global", "reads": "N/k", "reads_tokens": tokens // m}
        q_m, k_m = (t.leaf("landmarks", segment_means, x, options={"count": m}, **segment) for x in (q, k))
        wide, small = h * tokens * m, h * m * m
        query = self._weights(t, "query", q, k_m, wide, of_landmarks)
        landmark = self._weights(t, "landmark", q_m, k_m, small, of_landmarks)
        weigh = partial(t.leaf, "key.weighted_sum", product, title="Weighted sum softmax(Q̃Kᵀ)V", **of_tokens)
        values = weigh(self._weights(t, "key", q_m, k, wide, of_tokens), v)  # the weights live no longer
        worked = Worked("attention:multiples_of_identity", {"size": m, "factors": (7.0, 15.0, 13.0)})
        multiples = Weight((3, m, m), worked, "multiples_3MM", learns=False)
        facts, options = of_landmarks | {"matrix": True}, {"iterations": self.iterations}
        inverse = t.leaf("inverse", pseudo_inverse, landmark, weights=(multiples,), options=options, **facts)
        both = t.leaf("query_inverse", product, query, inverse, **facts)
        title = "Weighted sum of the landmarks' values"
        return t.leaf("weighted_sum", product, both, values, title=title, symbol="AV", **of_landmarks)

    @staticmethod
    def _weights(
        t: Operations, name: str, q: Tensor, k: Tensor, entries: Number, mixing: dict[str, Any]
    ) -> Tensor:  # fmt: skip
        """softmax(QKᵀ)."""
        factors = {"query": "QK̃ᵀ", "landmark": "Q̃K̃ᵀ", "key": "Q̃Kᵀ"}[name]
        facts = mixing | {"matrix": True}
        x = t.leaf(f"{name}.scores", scores, q, k, title=f"Scores {factors}", attention_entries=entries, **facts)
        return t.leaf(f"{name}.softmax", softmax, x, title=f"Softmax of {factors}", **facts)

    def notes(self, place: Place) -> Iterator[str]:
        n, padded = place.grid.total, self.padded(place.grid)
        if self.exact(place.grid):
            yield f"{n} tokens are no more than {self.landmarks} landmarks: attention is exact, quadratic in N"
        elif padded != n:
            yield PaddingNote(
                f"{n} tokens padded at the front to {padded}, {self.landmarks} segments of {padded // self.landmarks}: "
                f"{padded - n} padding tokens are projected and attended over, and counted"
            )


def projected(t: Functions, x: Tensor, table: Tensor) -> Tensor:
    """Eᵀx: (B, H, N, K), (N, R) or (H, N, R) -> (B, H, R, K)."""
    return table.mT @ x


def segment_means(t: Functions, x: Tensor, *, count: int) -> Tensor:
    """The means of M segments: (B, H, P, K) -> (B, H, M, K)."""
    return x.unflatten(2, (count, -1)).mean(3)


def pseudo_inverse(t: Functions, a: Tensor, multiples: Tensor, *, iterations: int) -> Tensor:
    """A⁺ of a softmax matrix A, iterated: Z ← ¼Z(13I - AZ(15I - AZ(7I - AZ))) (Xiong et al. 2021, equation 11).

    Z starts from Aᵀ over A's largest column sum: (B, H, M, M) -> (B, H, M, M).
    """
    seven, fifteen, thirteen = (multiples.select(0, at) for at in range(3))
    z = a.mT / a.sum(-2).amax(-1).unsqueeze(-1).unsqueeze(-1)
    for _ in t.steps(iterations):
        az = a @ z
        z = (z * 0.25) @ (thirteen - az @ (fifteen - az @ (seven - az)))
    return z


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

    titles: ClassVar[Mapping[str, str]] = {"points": "Inducing points"}

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        d = place.dim
        attention = partial(
            attend_to, inner=self.inner(d), heads=self.heads, bias=self.projection_bias, fused=place.fused,
            output=d if self.output_projection else None,
        )  # fmt: skip
        points = t.table("points", 1, self.points, d)
        induced = t.part("induced", "points read tokens")
        read = attention(induced, points, x, reads="N")
        if self.induce == "mab":
            rest, norms = t.part("induced", "points"), t.part("induced")
            z = norms.norm("norm", rest.leaf("add", added, read, points, title="Residual add"), self.norm)
            answer = rest.act("act", rest.linear("rff", z, d, title="rFF"), "relu", title="rFF activation")
            read = rest.leaf("rff_add", added, z, answer, title="rFF residual add")
            read = norms.norm("rff_norm", read, self.norm)
        return attention(t.part("", "tokens read points"), x, read, reads="k")

    def notes(self, place: Place) -> Iterator[str]:
        if self.points >= place.grid.total:
            yield (
                f"{self.points} inducing points for {place.grid.total} tokens: "
                "full attention reads as much with less work"
            )
