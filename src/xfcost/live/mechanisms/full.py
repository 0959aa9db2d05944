"""Twin of `mechanisms/full.py`. B batch, N tokens, D width, H heads, K head width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.live.leaves import (
    NO_TABLES,
    Linear,
    Scale,
    Scores,
    Softmax,
    Tables,
    WeightedSum,
    join_heads,
    split_heads,
)
from xfcost.live.mechanisms.core import Core
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.full import Full


class TalkingHeads(Linear):
    """The heads of every pair of tokens, mixed: (B, H, N, M) -> (B, H, N, M)."""

    def forward(self, pairs_BHNM: Tensor) -> Tensor:
        return super().forward(pairs_BHNM.movedim(1, -1)).movedim(-1, 1)


class TalkingCore(nn.Module):
    """P_w(softmax(P_l(QKᵀ/√K)))V: (B, H, N, K) three times -> (B, H, N, K)."""

    def __init__(self, head_dim: int, heads: int) -> None:
        super().__init__()
        self.scale = Scale(head_dim**-0.5)
        self.scores = Scores()
        self.proj_l = TalkingHeads(heads, heads)
        self.softmax = Softmax()
        self.proj_w = TalkingHeads(heads, heads)
        self.weighted_sum = WeightedSum()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights_BHNN = self.softmax(self.proj_l(self.scores(self.scale(q), k)))
        return self.weighted_sum(self.proj_w(weights_BHNN), v)


class FullAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, page: Full, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner = page.inner(place.dim)
        self.heads = page.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=page.projection_bias)
        head_dim = inner // page.heads
        if page.talking_heads:
            self.core: nn.Module = TalkingCore(head_dim, page.heads)
        else:
            self.core = Core(head_dim, fused=place.fused, causal=bool(page.causal))
        self.out = Linear(inner, place.dim, bias=page.projection_bias) if page.output_projection else None

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BND, k_BND, v_BND = self.qkv(x_BND).chunk(3, dim=-1)
        heads = (split_heads(part, self.heads) for part in (q_BND, k_BND, v_BND))
        y_BND = join_heads(self.core(*heads))
        return y_BND if self.out is None else self.out(y_BND)
