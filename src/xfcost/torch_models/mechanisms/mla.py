"""Module of `mechanisms/mla.py`.

B batch, N tokens, D width, H heads, C the latent's width, R turned columns, K and V a head's columns of content and of
values.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.mla import Mla
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import NO_TABLES, Linear, Tables, join_heads, split_heads
from xfcost.torch_models.shared.norms import RmsNorm
from xfcost.torch_models.shared.positions import Rotary


class LatentAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Mla, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        width, bias, self.heads = place.dim, config.projection_bias, config.heads
        content, values, keys = config.content(width), config.values(width), config.heads * config.key_dim(width)
        self.query_parts, self.value_parts = (content, config.rope_dim), (content, values)
        self.latent_parts = (config.kv_rank, config.rope_dim)
        self.q, self.q_down, self.q_norm, self.q_up = None, None, None, None
        if config.q_rank is None:
            self.q = Linear(width, keys, bias=False)
        else:
            self.q_down = Linear(width, config.q_rank, bias=bias)
            self.q_norm = RmsNorm(config.q_rank)
            self.q_up = Linear(config.q_rank, keys, bias=False)
        self.kv_down = Linear(width, config.latent, bias=bias)
        self.kv_norm = RmsNorm(config.kv_rank)
        self.rotary = Rotary(place.grid.total, config.rope_dim, config.rope_base)
        self.kv_up = Linear(config.kv_rank, config.heads * sum(self.value_parts), bias=False)
        self.join = Join()
        self.core = Core(config.key_dim(width), fused=place.fused, causal=bool(config.causal))
        self.out = Linear(config.heads * values, width, bias=bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BHNK, q_BHNR = split_heads(self._queries(x_BND), self.heads).split(self.query_parts, dim=-1)
        latent_BNC, k_BNR = self.kv_down(x_BND).split(self.latent_parts, dim=-1)
        kv_BHNX = split_heads(self.kv_up(self.kv_norm(latent_BNC)), self.heads)
        k_BHNK, v_BHNV = kv_BHNX.split(self.value_parts, dim=-1)
        k_BHNR = self.rotary(k_BNR.unsqueeze(1)).expand(-1, self.heads, -1, -1)
        q, k = self.join(q_BHNK, self.rotary(q_BHNR)), self.join(k_BHNK, k_BHNR)
        return self.out(join_heads(self.core(q, k, v_BHNV)))

    def _queries(self, x_BND: Tensor) -> Tensor:
        if self.q_down is None or self.q_norm is None or self.q_up is None:
            return self.q(x_BND)  # type: ignore[misc]
        return self.q_up(self.q_norm(self.q_down(x_BND)))


class Join(nn.Module):
    """Columns of content, then turned ones: (B, H, N, K), (B, H, N, R) -> (B, H, N, K + R)."""

    def forward(self, x_BHNK: Tensor, x_BHNR: Tensor) -> Tensor:
        return torch.cat([x_BHNK, x_BHNR], dim=-1)
