"""Twin of `mechanisms/cross.py`. B batch, N tokens here, M tokens of the memory, D width, H heads."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.live.leaves import NO_TABLES, Linear, Tables, join_heads, split_heads
from xfcost.live.mechanisms.core import Core
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.cross import Cross


class CrossAttention(nn.Module):
    """(B, N, D), memory (B, M, D') -> (B, N, D)."""

    def __init__(self, page: Cross, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner = page.inner(place.dim)
        self.heads = page.heads
        self.q = Linear(place.dim, inner, bias=page.projection_bias)
        self.kv = Linear(place.memory_dim, 2 * inner, bias=page.projection_bias)
        self.core = Core(inner // page.heads, fused=place.fused)
        self.out = Linear(inner, place.dim, bias=page.projection_bias)

    def forward(self, x_BND: Tensor, memory_BMD: Tensor) -> Tensor:
        q_BHNK = split_heads(self.q(x_BND), self.heads)
        k_BHMK, v_BHMK = (split_heads(part, self.heads) for part in self.kv(memory_BMD).chunk(2, dim=-1))
        return self.out(join_heads(self.core(q_BHNK, k_BHMK, v_BHMK)))
