"""Latent attention for one token more: `mechanisms/mla.py`, `decoding`.

B batch, N tokens with the new one, M tokens that it reads, D width, H heads, C the latent's width, R turned columns, K
and V a head's columns of content and of values. Parameters stand under the names that the module of all N tokens gives
them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from xfcost.formulas.component import Place, alone
from xfcost.mechanisms.mla import Mla
from xfcost.torch_models.decoding.attention import RotaryAt
from xfcost.torch_models.mechanisms.mla import LatentAttention
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.cache import Kept
from xfcost.torch_models.shared.leaves import Fused, Linear, Tables, join_heads, split_heads


class LatentCache(Kept):
    """A token's latent (B, 1, C) and turned key (B, 1, 1, R) -> those of all that it reads: (B, 1, M, C + R)."""

    latents_BNX: Tensor

    def __init__(self, batch: int, tokens: int, width: int) -> None:
        super().__init__()
        self.keeps("latents_BNX", batch, tokens, width)

    def forward(self, latent_B1C: Tensor, key_B11R: Tensor) -> Tensor:
        width = latent_B1C.shape[-1]
        index = torch.arange(self.position, self.position + 1, device=latent_B1C.device)
        self.latents_BNX[..., :width].index_copy_(1, index, latent_B1C)
        self.latents_BNX[..., width:].index_copy_(1, index, key_B11R.squeeze(1))
        return self.latents_BNX[:, : self.position + 1].unsqueeze(1)


class Absorbed(Linear):
    """The maps from the latent to keys and values: the first turned round, on queries; the second on what was read.

    (B, H, 1, K) -> (B, H, 1, C), and (B, H, 1, C) -> (B, H, 1, V).
    """

    def __init__(self, heads: int, rank: int, content: int, values: int) -> None:
        super().__init__(rank, heads * (content + values), bias=False)
        self.heads, self.parts = heads, (content, values)

    def forward(self, x_BH1X: Tensor, *, values: bool = False) -> Tensor:
        to_keys_HKC, to_values_HVC = self.weight.unflatten(0, (self.heads, -1)).split(self.parts, dim=1)
        return x_BH1X @ (to_values_HVC.transpose(1, 2) if values else to_keys_HKC)


class LatentStep(LatentAttention):
    """(B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: Mla, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, alone(place), tables)
        tokens, width = place.grid.total, place.dim
        self.rotary = RotaryAt(tokens, config.rope_dim, config.rope_base)
        self.cache = LatentCache(batch, tokens, config.latent)
        self.kv_up = Absorbed(config.heads, config.kv_rank, *self.value_parts)
        # the same scale in both forms, though the vectors that meet here are longer
        self.core = Core(config.key_dim(width), fused=place.fused, shared=config.heads)
        if place.fused:
            self.core.attention = FusedBy(config.key_dim(width) ** -0.5)

    def forward(self, x_B1D: Tensor) -> Tensor:
        q_BH1K, q_BH1R = split_heads(self._queries(x_B1D), self.heads).split(self.query_parts, dim=-1)
        latent_B1C, k_B1R = self.kv_down(x_B1D).split(self.latent_parts, dim=-1)
        read_B1MX = self.cache(self.kv_norm(latent_B1C), self.rotary(k_B1R.unsqueeze(1)))
        q_BH1X = self.join(self.kv_up(q_BH1K), self.rotary(q_BH1R))
        given_BH1C = self.core(q_BH1X, read_B1MX, read_B1MX[..., : self.latent_parts[0]])
        return self.out(join_heads(self.kv_up(given_BH1C, values=True)))


class FusedBy(Fused):
    """One kernel whose scores are scaled by a number of their own, all heads reading the same keys and values."""

    def __init__(self, scale: float) -> None:
        super().__init__(grouped=True)
        self.scale = scale
