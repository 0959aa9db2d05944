"""Module of `mechanisms/low_rank.py`: attention to projected keys and values, through landmarks or inducing points.

B batch, N tokens, R rows (rank), M landmarks, S inducing points, D width, H heads, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.low_rank import Inducing, LowRank, Nystrom
from xfcost.torch_models.shared.attention import Core, Reading
from xfcost.torch_models.shared.leaves import (
    NO_TABLES,
    Add,
    Leaf,
    Linear,
    Scale,
    Scores,
    Softmax,
    Table,
    Tables,
    TableUser,
    Uninitialised,
    WeightedSum,
    join_heads,
    split_heads,
    through,
    with_zeros,
)
from xfcost.torch_models.shared.norms import norm


class LowRankAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: LowRank, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner, name = config.inner(place.dim), config.table(place)
        self.heads = config.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        shape: tuple[int, ...] = (place.grid.total, config.rank)
        self.projection: ProjectTokens | None = None
        if config.share in ("key_value", "layerwise"):
            self.projection = ProjectTokens(shape, tables[name] if name else None)
        else:
            shape = (config.heads, *shape) if config.share == "none" else shape
            self.key_projection, self.value_projection = ProjectTokens(shape), ProjectTokens(shape)
        self.core = Core(inner // config.heads, fused=place.fused)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x_BND).chunk(3, dim=-1))
        if self.projection is not None:
            k_BHRK, v_BHRK = self.projection(k), self.projection(v)
        else:
            k_BHRK, v_BHRK = self.key_projection(k), self.value_projection(v)
        return self.out(join_heads(self.core(q, k_BHRK, v_BHRK)))


class ProjectTokens(TableUser):
    """Eᵀx along the tokens: (B, H, N, K) -> (B, H, R, K). `shared` is a shared table.

    The weights are (N, R), or (H, N, R) with one matrix per head.
    """

    def __init__(self, shape: tuple[int, ...], shared: Table | None = None) -> None:
        super().__init__(*shape, shared=shared)
        if self.weight is not None and not self.weight.is_meta:
            nn.init.normal_(self.weight, std=shape[-1] ** -0.5)  # Wang et al. 2020, theorem 2: N(0, 1/k)

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return self.table.mT @ x_BHNK


class NystromAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Nystrom, place: Place) -> None:
        super().__init__()
        inner, head_dim = config.inner(place.dim), config.inner(place.dim) // config.heads
        self.heads, self.more = config.heads, config.padded(place.grid) - place.grid.total
        exact = config.exact(place.grid)
        self.pad = None if exact else Leaf(with_zeros, before=self.more)
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        self.core = Core(head_dim, fused=place.fused) if exact else Landmarks(config, head_dim)
        self.conv: ValueConvolution | None = None
        if config.conv is not None:
            self.conv = ValueConvolution(config.heads, config.conv)
            self.add = Add()
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = through(x_BND, self.pad)
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x_BND).chunk(3, dim=-1))
        y_BHNK = self.core(q, k, v)
        if self.conv is not None:
            y_BHNK = self.add(y_BHNK, self.conv(v))
        return self.out(join_heads(y_BHNK[:, :, self.more :]))


class Landmarks(nn.Module):
    """softmax(QK̃ᵀ)·softmax(Q̃K̃ᵀ)⁺·softmax(Q̃Kᵀ)·V: (B, H, N, K) three times -> (B, H, N, K)."""

    def __init__(self, config: Nystrom, head_dim: int) -> None:
        super().__init__()
        self.scale = Scale(head_dim**-0.25)
        self.landmarks = Leaf(segment_means, count=config.landmarks)
        self.query, self.landmark, self.key = Weights(), Weights(), KeyWeights()
        self.inverse = PseudoInverse(config.landmarks, config.iterations)
        self.query_inverse = WeightedSum()
        self.weighted_sum = WeightedSum()

    def forward(self, q_BHNK: Tensor, k_BHNK: Tensor, v_BHNK: Tensor) -> Tensor:
        q_BHNK, k_BHNK = self.scale(q_BHNK), self.scale(k_BHNK)
        q_BHMK, k_BHMK = self.landmarks(q_BHNK), self.landmarks(k_BHNK)
        query_BHNM, landmark_BHMM = self.query(q_BHNK, k_BHMK), self.landmark(q_BHMK, k_BHMK)
        v_BHMK = self.key(q_BHMK, k_BHNK, v_BHNK)
        return self.weighted_sum(self.query_inverse(query_BHNM, self.inverse(landmark_BHMM)), v_BHMK)


def segment_means(x_BHNK: Tensor, *, count: int) -> Tensor:
    """The means of M segments: (B, H, N, K) -> (B, H, M, K)."""
    return x_BHNK.unflatten(2, (count, -1)).mean(dim=3)


class Weights(nn.Module):
    """softmax(QKᵀ)."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = Scores()
        self.softmax = Softmax()

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.softmax(self.scores(q, k))


class KeyWeights(Weights):
    """softmax(QKᵀ)V."""

    def __init__(self) -> None:
        super().__init__()
        self.weighted_sum = WeightedSum()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # type: ignore[override]
        return self.weighted_sum(super().forward(q, k), v)


class PseudoInverse(nn.Module):
    """Iterative A⁺ of a softmax matrix A (Xiong et al. 2021, equation 11): (B, H, M, M) -> (B, H, M, M)."""

    multiples_3MM: Tensor

    def __init__(self, size: int, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        multiples_3MM = torch.tensor([7.0, 15.0, 13.0])[:, None, None] * torch.eye(size)
        self.register_buffer("multiples_3MM", multiples_3MM, persistent=False)

    def forward(self, a: Tensor) -> Tensor:
        seven, fifteen, thirteen = self.multiples_3MM.unbind(0)
        z = a.mT / a.sum(-2).amax(-1)[..., None, None]
        for _ in range(self.iterations):
            az = a @ z
            z = (z * 0.25) @ (thirteen - az @ (fifteen - az @ (seven - az)))
        return z


class ValueConvolution(Uninitialised, nn.Conv2d):
    """A convolution of each head's values along the tokens: (B, H, N, K) -> (B, H, N, K)."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__(heads, heads, (size, 1), padding=(size // 2, 0), groups=heads, bias=False)


def _attention(config: Inducing, place: Place) -> Reading:
    return Reading(
        (place.dim, place.dim),
        config.inner(place.dim),
        config.heads,
        bias=config.projection_bias,
        fused=place.fused,
        output=config.output_projection,
    )


class Induced(nn.Module):
    """The points after reading the tokens, MAB(I, X) or MH(I, X, X): (1, S, D), (B, N, D) -> (B, S, D)."""

    def __init__(self, config: Inducing, place: Place) -> None:
        super().__init__()
        d = place.dim
        self.inner = _attention(config, place)
        self.mab = config.induce == "mab"
        if self.mab:
            self.add = Add()
            self.norm = norm(config.norm, d)
            self.rff = Linear(d, d)
            self.act = nn.ReLU()
            self.rff_add = Add()
            self.rff_norm = norm(config.norm, d)

    def forward(self, points_1SD: Tensor, x_BND: Tensor) -> Tensor:
        read_BSD: Tensor = self.inner(points_1SD, x_BND)
        if not self.mab:
            return read_BSD
        z_BSD = through(self.add(read_BSD, points_1SD), self.norm)
        return through(self.rff_add(z_BSD, self.act(self.rff(z_BSD))), self.rff_norm)


class InducedAttention(nn.Module):
    """(B, N, D) -> (B, N, D): the points read all tokens, then each token reads the points."""

    def __init__(self, config: Inducing, place: Place) -> None:
        super().__init__()
        self.points = Table(1, config.points, place.dim)
        self.induced = Induced(config, place)
        self.inner = _attention(config, place)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.inner(x_BND, self.induced(self.points(), x_BND))
