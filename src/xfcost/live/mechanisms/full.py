"""Twin of `mechanisms/full.py`. B batch, N tokens, D width, H heads, K head width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.live.leaves import CausalMask, Fused, Linear, Scale, Scores, Softmax, WeightedSum, join_heads, split_heads
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.full import Full


class FullAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, page: Full, place: Place) -> None:
        super().__init__()
        inner = page.inner(place.dim)
        self.heads = page.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=page.projection_bias)
        self.core = Core(inner // page.heads, fused=place.fused, causal=bool(page.causal))
        self.out = Linear(inner, place.dim, bias=page.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BND, k_BND, v_BND = self.qkv(x_BND).chunk(3, dim=-1)
        heads = (split_heads(part, self.heads) for part in (q_BND, k_BND, v_BND))
        return self.out(join_heads(self.core(*heads)))


class Core(nn.Module):
    """softmax(QKᵀ/√K)V, eager or fused, for any leading dimensions: (…, N, K), (…, M, K) -> (…, N, K)."""

    def __init__(self, head_dim: int, *, fused: bool, causal: bool = False) -> None:
        super().__init__()
        self.fused = fused
        if fused:
            self.attention = Fused(causal=causal)
            return
        self.scale = Scale(head_dim**-0.5)
        self.scores = Scores()
        self.mask = CausalMask() if causal else None
        self.softmax = Softmax()
        self.weighted_sum = WeightedSum()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return self.attention(q, k, v)
        scores = self.scores(self.scale(q), k)
        if self.mask is not None:
            scores = self.mask(scores)
        return self.weighted_sum(self.softmax(scores), v)
