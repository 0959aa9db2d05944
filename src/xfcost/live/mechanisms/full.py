"""Twin of `mechanisms/full.py`. B batch, N tokens, D width, H heads, K head width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.live.leaves import NO_TABLES, Linear, Tables, join_heads, split_heads
from xfcost.live.mechanisms.core import Core
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.full import Full


class FullAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, page: Full, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner = page.inner(place.dim)
        self.heads = page.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=page.projection_bias)
        self.core = Core(inner // page.heads, fused=place.fused, causal=bool(page.causal))
        self.out = Linear(inner, place.dim, bias=page.projection_bias) if page.output_projection else None

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BND, k_BND, v_BND = self.qkv(x_BND).chunk(3, dim=-1)
        heads = (split_heads(part, self.heads) for part in (q_BND, k_BND, v_BND))
        y_BND = join_heads(self.core(*heads))
        return y_BND if self.out is None else self.out(y_BND)
