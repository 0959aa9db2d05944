"""Linear attention with feature maps of queries and keys.

B batch, H heads, N tokens, G chunks of C tokens, D width, K head width, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.kernel import EluPlusOne, Kernel, RandomFeatures
from xfcost.torch_models.shared.cache import RecurrentState
from xfcost.torch_models.shared.leaves import (
    Add,
    Leaf,
    Linear,
    Scale,
    Scores,
    WeightedSum,
    join_heads,
    split_heads,
    with_zeros,
)

# The ε that the public implementation of FAVOR+ adds to each feature, by function.
EPSILON = {"softmax": 1e-4, "relu": 1e-3}


def elu_features(x: Tensor) -> Tensor:
    """elu(x) + 1."""
    return F.elu(x) + 1


def relu_features(projected: Tensor, x: Tensor) -> Tensor:
    """max(ωx, 0) + ε: (…, F), (…, K) -> (…, F)."""
    return projected.relu() + EPSILON["relu"]


class SoftmaxFeatures(nn.Module):
    """(exp(ωx - |x|²/2 - most) + ε)/√F: (…, F), (…, K) -> (…, F).

    `most` is the largest ωx over the axes `over`, or 0 without axes.
    """

    def __init__(self, count: int, over: tuple[int, ...] | None) -> None:
        super().__init__()
        self.ratio, self.over = count**-0.5, over

    def forward(self, projected: Tensor, x: Tensor) -> Tensor:
        lowered = (x * x).sum(-1, keepdim=True) * 0.5
        if self.over is not None:
            lowered = lowered + projected.amax(self.over, keepdim=True).detach()
        return ((projected - lowered).exp() + EPSILON["softmax"]) * self.ratio


def feature_map(features: EluPlusOne | RandomFeatures, over: tuple[int, ...] | None) -> nn.Module:
    """φ. Its exponent is lowered by the maximum over the axes `over`."""
    if isinstance(features, EluPlusOne):
        return Leaf(elu_features)
    return Leaf(relu_features) if features.function == "relu" else SoftmaxFeatures(features.count, over)


class Project(nn.Module):
    """ωᵢ·x for all i: (…, K) -> (…, F). The ωᵢ are a buffer."""

    features_FK: Tensor

    def __init__(self, features_FK: Tensor) -> None:
        super().__init__()
        self.register_buffer("features_FK", features_FK)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.features_FK.T


def orthogonal_features(count: int, width: int) -> Tensor:
    """(F, K): rows orthogonal in blocks of K, with Gaussian lengths (Choromanski et al. 2021, §2.4).

    Drawn from torch's generator in float64; on `meta` an empty tensor. The signs that QR chooses depend on the matrix,
    which would bias the directions, and exp(ω·x) with them. A positive diagonal of R makes them uniform (Mezzadri
    2007).
    """
    device = torch.empty(0).device
    if device.type == "meta":
        return torch.empty(count, width)
    with torch.device("cpu"):
        blocks = torch.randn(-(-count // width), width, width, dtype=torch.float64)
        q, r = torch.linalg.qr(blocks)
        directions_FK = (q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT.flatten(0, 1)[:count]
        lengths_F1 = torch.randn(count, width, dtype=torch.float64).norm(dim=-1, keepdim=True)
        features_FK = directions_FK * lengths_F1
    return features_FK.to(device, torch.get_default_dtype())


class KernelAttention(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a recurrent state."""

    def __init__(self, config: Kernel, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        inner, head_dim = config.inner(place.dim), config.inner(place.dim) // config.heads
        self.heads, self.tokens = config.heads, place.grid.total
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        chunked = config.scheme == "chunked" and cache_batch is None
        count, size = config.chunks(place.grid)
        self.pad = Leaf(in_chunks, chunks=(count, size), more=count * size - self.tokens) if chunked else None
        self.scale: Scale | None = None
        if isinstance(config.features, RandomFeatures):
            self.scale = Scale(head_dim**-0.25)
            self.project = Project(orthogonal_features(config.features.count, head_dim))
        self.q_features = feature_map(config.features, over=(-1,))
        self.k_features = feature_map(config.features, over=None if config.causal else (-1, -2))
        if cache_batch is None:
            self.core: nn.Module = FORMS[config.scheme](config.features.epsilon)
        else:
            keys = (cache_batch, config.heads, 1, config.features.width(head_dim))
            self.core = KernelStep(config.features.epsilon, RecurrentState((*keys, head_dim), keys))
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x_BND).chunk(3, dim=-1))
        if self.pad is not None:  # (B, H, N, K) -> (B, H, G, C, K)
            q, k, v = self.pad(q), self.pad(k), self.pad(v)
        if self.scale is not None:
            q, k = self.scale(q), self.scale(k)
            q, k = self.q_features(self.project(q), q), self.k_features(self.project(k), k)
        else:
            q, k = self.q_features(q), self.k_features(k)
        y = self.core(q, k, v)
        if self.pad is not None:
            y = y.flatten(2, 3).narrow(2, 0, self.tokens)
        return self.out(join_heads(y))


def in_chunks(x_BHNK: Tensor, *, chunks: tuple[int, int], more: int) -> Tensor:
    """`more` zeros after the last token, cut into chunks: (B, H, N, K) -> (B, H, G, C, K)."""
    return with_zeros(x_BHNK, after=more).unflatten(2, chunks)


def state_of(k: Tensor, v: Tensor) -> Tensor:
    """φ(K)ᵀV: (…, N, F), (…, N, K) -> (…, F, K)."""
    return k.transpose(-2, -1) @ v


def key_sum(k: Tensor) -> Tensor:
    """Σφ(k): (…, N, F) -> (…, F, 1)."""
    return k.sum(-2).unsqueeze(-1)


def normaliser(q: Tensor, sums: Tensor, *, epsilon: float) -> Tensor:
    """φ(q)·Σφ(k) + ε: (…, N, F), (…, F, 1) -> (…, N, 1)."""
    weight = q @ sums
    return weight + epsilon if epsilon else weight


def row_sum(weights: Tensor, *, epsilon: float) -> Tensor:
    """The sum of a query's weights plus ε: (…, N, M) -> (…, N, 1)."""
    weight = weights.sum(-1, keepdim=True)
    return weight + epsilon if epsilon else weight


def prefix_sum(states: Tensor) -> Tensor:
    """The sum over all earlier chunks: (B, H, G, …) -> (B, H, G, …), zeros for the first."""
    earlier = F.pad(states, (0, 0, 0, 0, 1, -1))
    return earlier.cumsum(2)


def updated_key_sum(before: Tensor | None, k: Tensor) -> Tensor:
    """Σφ(k) up to each token, added to `before` in a single step: (B, H, n, F) -> (B, H, n, F)."""
    return k.cumsum(2) if before is None else before + k


def updated_state(before: Tensor | None, k: Tensor, v: Tensor) -> Tensor:
    """Σφ(k)vᵀ up to each token, added to the state in a single step: (B, H, n, F), (B, H, n, K) -> (B, H, n, F, K)."""
    new = k.unsqueeze(-1) @ v.unsqueeze(-2)
    return new.cumsum(2) if before is None else before + new


class NotCausal(nn.Module):
    """Not causal: φ(Q)(φ(K)ᵀV)."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.state = Leaf(state_of)
        self.key_sum = Leaf(key_sum)
        self.read = WeightedSum()
        self.normaliser = Leaf(normaliser, epsilon=epsilon)
        self.divide = Leaf(torch.div)

    def forward(self, q_BHNF: Tensor, k_BHNF: Tensor, v_BHNK: Tensor) -> Tensor:
        state_BHFK, sum_BHF1 = self.state(k_BHNF, v_BHNK), self.key_sum(k_BHNF)
        return self.divide(self.read(q_BHNF, state_BHFK), self.normaliser(q_BHNF, sum_BHF1))


class Within(nn.Module):
    """The masked matrix of all products: contributions to the sum and to the normaliser."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.scores = Scores()
        self.mask = Leaf(torch.tril)
        self.weighted_sum = WeightedSum()
        self.normaliser = Leaf(row_sum, epsilon=epsilon)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = self.mask(self.scores(q, k))
        return self.weighted_sum(weights, v), self.normaliser(weights)


class Parallel(Within):
    """Causal, with the masked matrix of all products."""

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon)
        self.divide = Leaf(torch.div)

    def forward(self, q_BHNF: Tensor, k_BHNF: Tensor, v_BHNK: Tensor) -> Tensor:  # type: ignore[override]
        return self.divide(*super().forward(q_BHNF, k_BHNF, v_BHNK))


class Chunked(NotCausal):
    """Causal: a chunk reads earlier chunks through their summed state, and itself through the masked matrix."""

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon)
        self.local = Within(0)
        self.prefix_sum = Leaf(prefix_sum)
        self.add = Add()

    def forward(self, q_BHGCF: Tensor, k_BHGCF: Tensor, v_BHGCK: Tensor) -> Tensor:
        near_BHGCK, near_BHGC1 = self.local(q_BHGCF, k_BHGCF, v_BHGCK)
        states_BHGFK, sums_BHGF1 = self.state(k_BHGCF, v_BHGCK), self.key_sum(k_BHGCF)
        states_BHGFK, sums_BHGF1 = self.prefix_sum(states_BHGFK), self.prefix_sum(sums_BHGF1)
        y_BHGCK, weights_BHGC1 = self.read(q_BHGCF, states_BHGFK), self.normaliser(q_BHGCF, sums_BHGF1)
        return self.divide(self.add(near_BHGCK, y_BHGCK), self.add(near_BHGC1, weights_BHGC1))


class KernelRecurrence(nn.Module):
    """The leaves of one step of the causal recurrence (Katharopoulos et al. 2020, equations 16 to 20)."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.state = Leaf(updated_state)
        self.key_sum = Leaf(updated_key_sum)
        self.read = WeightedSum()
        self.normaliser = Leaf(normaliser, epsilon=epsilon)
        self.divide = Leaf(torch.div)

    def step(
        self, q: Tensor, k: Tensor, v: Tensor, state: Tensor | None = None, key_sum: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """φ(q), φ(k) (B, H, n, F), v (B, H, n, K) -> sum (B, H, n, K), normaliser (B, H, n, 1), state, key sum."""
        state, key_sum = self.state(state, k, v), self.key_sum(key_sum, k)
        q_BHn1F = q.unsqueeze(-2)
        y = self.read(q_BHn1F, state).squeeze(-2)
        return y, self.normaliser(q_BHn1F, key_sum.unsqueeze(-1)).squeeze(-2), state, key_sum


class RecurrentKernel(KernelRecurrence):
    """Causal, one token after the other.

    A trace records all steps as one step of N tokens: the same operations, N times as large, so the graph does not grow
    with N. Every other run, `meta` included, walks the steps.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon)
        self.join = Leaf(torch.cat, dim=2)

    def forward(self, q_BHNF: Tensor, k_BHNF: Tensor, v_BHNK: Tensor) -> Tensor:
        if torch.jit.is_tracing():  # type: ignore[attr-defined] # public, and missing from torch's stubs
            y, weight, *_ = self.step(q_BHNF, k_BHNF, v_BHNK)
            return self.divide(self.join([y]), self.join([weight]))
        state = q_BHNF.new_zeros(*q_BHNF.shape[:2], 1, q_BHNF.shape[-1], v_BHNK.shape[-1])
        key_sum = state[..., 0]
        parts = []
        for q, k, v in zip(*(tensor.split(1, dim=2) for tensor in (q_BHNF, k_BHNF, v_BHNK)), strict=True):
            y, weight, state, key_sum = self.step(q, k, v, state, key_sum)
            parts.append((y, weight))
        ys, weights = zip(*parts, strict=True)
        return self.divide(self.join(ys), self.join(weights))


class KernelStep(KernelRecurrence):
    """A decode step on the cached state and key sum: φ(q), φ(k) (B, H, 1, F), v (B, H, 1, K) -> (B, H, 1, K)."""

    def __init__(self, epsilon: float, cache: RecurrentState) -> None:
        super().__init__(epsilon)
        self.cache = cache

    def forward(self, q_BH1F: Tensor, k_BH1F: Tensor, v_BH1K: Tensor) -> Tensor:
        y_BH1K, weight_BH11, *new = self.step(q_BH1F, k_BH1F, v_BH1K, *self.cache.past)
        self.cache(*new)
        return self.divide(y_BH1K, weight_BH11)


FORMS: dict[str | None, type[NotCausal | Parallel | Chunked | RecurrentKernel]] = {
    None: NotCausal,
    "parallel": Parallel,
    "chunked": Chunked,
    "recurrent": RecurrentKernel,
}
