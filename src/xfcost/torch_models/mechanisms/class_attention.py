"""Module of `mechanisms/full.py`: attention of the special tokens to all tokens.

B batch, N tokens, E special tokens among them, D width, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.full import ClassAttention
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import Linear, join_heads, split_heads


class ClassTokenAttention(nn.Module):
    """(B, N, D) -> (B, E, D)."""

    def __init__(self, config: ClassAttention, place: Place) -> None:
        super().__init__()
        inner = config.inner(place.dim)
        self.heads, self.special = config.heads, place.grid.special
        self.q = Linear(place.dim, inner, bias=config.projection_bias)
        self.k = Linear(place.dim, inner, bias=config.projection_bias)
        self.v = Linear(place.dim, inner, bias=config.projection_bias)
        self.core = Core(inner // config.heads, fused=place.fused)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BHEK = split_heads(self.q(x_BND[:, : self.special]), self.heads)
        k_BHNK, v_BHNK = (split_heads(part(x_BND), self.heads) for part in (self.k, self.v))
        return self.out(join_heads(self.core(q_BHEK, k_BHNK, v_BHNK)))
