"""Module of `mechanisms/mla.py`: attention to keys and values expanded from a latent.

B batch, N tokens, M tokens that a decode step reads, D width, H heads, C width of the latent, R rotary columns, K and V
content and value columns of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.mla import Mla
from xfcost.torch_models.shared.attention import Core, Rotary, RotaryAtPosition
from xfcost.torch_models.shared.cache import Cache
from xfcost.torch_models.shared.leaves import Leaf, Linear, join_heads, joined, split_heads
from xfcost.torch_models.shared.norms import RmsNorm


class LatentAttention(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a cache of N latents.

    With the cache, the maps out of the latent are absorbed into queries and outputs (DeepSeek-V2 2024, §2.1.2): all
    heads read the latents.
    """

    def __init__(self, config: Mla, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        decodes = cache_batch is not None
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
        rotary = RotaryAtPosition if decodes else Rotary
        self.rotary = rotary(place.grid.total, config.rope_dim, config.rope_base)
        self.cache = None if cache_batch is None else LatentCache(cache_batch, place.grid.total, config.latent)
        if decodes:
            self.kv_up: Linear = Absorbed(config.kv_rank, config.heads, self.value_parts)
        else:
            self.kv_up = Linear(config.kv_rank, config.heads * sum(self.value_parts), bias=False)
        self.join = Leaf(joined, dim=-1)
        self.core = core(config, place, decodes=decodes)
        self.out = Linear(config.heads * values, width, bias=bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BHNK, q_BHNR = split_heads(self._queries(x_BND), self.heads).split(self.query_parts, dim=-1)
        latent_BNC, k_BNR = self.kv_down(x_BND).split(self.latent_parts, dim=-1)
        if self.cache is not None:
            return self._absorbed(q_BHNK, q_BHNR, self.cache(self.kv_norm(latent_BNC), self.rotary(k_BNR.unsqueeze(1))))
        kv_BHNX = split_heads(self.kv_up(self.kv_norm(latent_BNC)), self.heads)
        k_BHNK, v_BHNV = kv_BHNX.split(self.value_parts, dim=-1)
        k_BHNR = self.rotary(k_BNR.unsqueeze(1)).expand(-1, self.heads, -1, -1)
        q, k = self.join(q_BHNK, self.rotary(q_BHNR)), self.join(k_BHNK, k_BHNR)
        return self.out(join_heads(self.core(q, k, v_BHNV)))

    def _absorbed(self, q_BH1K: Tensor, q_BH1R: Tensor, latents_B1MX: Tensor) -> Tensor:
        """All heads read the same latents and rotary keys, X = C + R columns: -> (B, 1, D)."""
        q_BH1X = self.join(self.kv_up(q_BH1K), self.rotary(q_BH1R))
        read_BH1C = self.core(q_BH1X, latents_B1MX, latents_B1MX[..., : self.latent_parts[0]])
        return self.out(join_heads(self.kv_up(read_BH1C, values=True)))

    def _queries(self, x_BND: Tensor) -> Tensor:
        if self.q_down is None or self.q_norm is None or self.q_up is None:
            return self.q(x_BND)  # type: ignore[misc]
        return self.q_up(self.q_norm(self.q_down(x_BND)))


def core(config: Mla, place: Place, *, decodes: bool) -> Core:
    """The attention core with the scale of a head's keys. In a decode step all heads share the latents."""
    width, fused = config.key_dim(place.dim), place.fused
    if not decodes:
        return Core(width, fused=fused, causal=bool(config.causal))
    shared = Core(width, fused=fused, shared=config.heads)
    if fused:  # otherwise the kernel scales by the latents' width
        shared.attention.scale = width**-0.5
    return shared


class Absorbed(Linear):
    """The maps out of the latent, applied to queries and outputs instead of to the latents.

    Queries by the map to keys, (B, H, 1, K) -> (B, H, 1, C); with `values`, outputs by the map to values, (B, H, 1, C)
    -> (B, H, 1, V).
    """

    def __init__(self, rank: int, heads: int, parts: tuple[int, int]) -> None:
        super().__init__(rank, heads * sum(parts), bias=False)
        self.heads, self.parts = heads, parts

    def forward(self, x_BH1X: Tensor, *, values: bool = False) -> Tensor:
        to_keys_HKC, to_values_HVC = self.weight.unflatten(0, (self.heads, -1)).split(self.parts, dim=1)
        return x_BH1X @ (to_values_HVC.transpose(1, 2) if values else to_keys_HKC)


class LatentCache(Cache):
    """Stores a token's latent (B, 1, C) and rotary key (B, 1, 1, R) -> those of M tokens, (B, 1, M, C + R)."""

    latents_BNX: Tensor

    def __init__(self, batch: int, tokens: int, width: int) -> None:
        super().__init__()
        self.add_buffer("latents_BNX", batch, tokens, width)

    def forward(self, latent_B1C: Tensor, key_B11R: Tensor) -> Tensor:
        width = latent_B1C.shape[-1]
        index = torch.arange(self.position, self.position + 1, device=latent_B1C.device)
        self.latents_BNX[..., :width].index_copy_(1, index, latent_B1C)
        self.latents_BNX[..., width:].index_copy_(1, index, key_B11R.squeeze(1))
        return self.latents_BNX[:, : self.position + 1].unsqueeze(1)
