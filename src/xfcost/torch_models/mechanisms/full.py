"""Softmax attention to all tokens: of all, of special tokens only, of a decoder to its encoder's output; by latents.

B batch, N tokens, E special tokens among them (of a memory: its width), M tokens of the memory or of a decode step, D
width, H heads, K head width, V of values, C width of the latent, R rotary columns.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.full import ClassAttention, Cross, Full, Mla
from xfcost.torch_models.shared.attention import (
    BucketBias,
    BucketBiasAtPosition,
    Core,
    GroupedHeads,
    Reading,
    Rotary,
    RotaryAtPosition,
    alibi,
)
from xfcost.torch_models.shared.cache import Cache, KeyValueCache, MemoryCache
from xfcost.torch_models.shared.leaves import (
    NO_TABLES,
    Leaf,
    Linear,
    Scale,
    Scores,
    Softmax,
    Tables,
    WeightedSum,
    causal_mask,
    join_heads,
    joined,
    split_heads,
)
from xfcost.torch_models.shared.norms import RmsNorm


class TalkingHeads(Linear):
    """Mixes the heads of each token pair without copying the matrix: (B, H, N, M) -> (B, H, N, M)."""

    def forward(self, pairs_BHNM: Tensor) -> Tensor:
        weight_BHH = self.weight.expand(len(pairs_BHNM), -1, -1)
        mixed_BHX = weight_BHH @ pairs_BHNM.flatten(2) + self.bias.unsqueeze(-1)
        return mixed_BHX.unflatten(2, pairs_BHNM.shape[2:])


class TalkingCore(nn.Module):
    """P_w(softmax(P_l(QKᵀ/√K)))V: (B, H, N, K) twice, (B, H, N, V) -> (B, H, N, V)."""

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


class FullAttention(GroupedHeads):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a KV cache of N tokens."""

    alibi_H1N: Tensor

    def __init__(self, config: Full, place: Place, tables: Tables = NO_TABLES, cache_batch: int | None = None) -> None:
        inner, tokens, decodes = config.inner(place.dim), place.grid.total, cache_batch is not None
        super().__init__(config, place.dim, tokens, decodes=decodes)
        self.relative_bias: BucketBias | None = None
        if config.bias:
            bias = BucketBiasAtPosition if decodes else BucketBias
            shared = tables[config.bias.share] if config.bias.share else None
            self.relative_bias = bias(config.bias, tokens, config.heads, shared, causal=bool(config.causal))
        self.alibi = config.position == "alibi"
        if self.alibi:
            self.register_buffer("alibi_H1N", alibi(tokens, config.heads), persistent=False)
        self.cache: KeyValueCache | None = None
        if cache_batch is not None:
            self.cache = KeyValueCache(cache_batch, self.heads[1], tokens, self.cached_widths)
        masked, talking = bool(config.causal) and not decodes, config.talking_heads
        self.core = TalkingCore(inner // config.heads, config.heads) if talking else core(config, place, masked=masked)
        values_width = config.value_inner(place.dim)
        self.out = Linear(values_width, place.dim, bias=config.biased_output) if config.output_projection else None

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BHNK, k_BGMK, v_BGMV = self.projected(x_BND)
        bias_HNM = self._bias()
        if self.cache is not None:
            k_BGMK, v_BGMV = self.cache(k_BGMK, v_BGMV)
        y_BND = join_heads(self.core(q_BHNK, k_BGMK, v_BGMV, *(() if bias_HNM is None else (bias_HNM,))))
        return y_BND if self.out is None else self.out(y_BND)

    def _bias(self) -> Tensor | None:
        """The position bias of the scores, the same for all samples: (H, N, M); N is 1 in a decode step."""
        if self.relative_bias is not None:
            return self.relative_bias()
        if not self.alibi:
            return None
        if self.cache is not None:
            return self.alibi_H1N[..., : self.cache.position + 1]
        return self.alibi_H1N.expand(-1, self.alibi_H1N.shape[-1], -1)


def core(config: Full, place: Place, *, masked: bool) -> Core:
    """The attention core without talking heads. `masked` adds the causal mask."""
    return Core(
        config.inner(place.dim) // config.heads,
        fused=place.fused,
        causal=masked and not config.biased,
        biased=config.biased,
        scaled=config.scaled,
        shared=config.shared,
        mask=Leaf(causal_mask) if masked and config.biased else None,  # fused, it masks the bias
    )


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


class DecoderCrossAttention(Reading):
    """(B, N, D), memory (B, M, E) -> (B, N, D). A decode step, (B, 1, D) -> (B, 1, D), reads cached keys and values."""

    def __init__(self, config: Cross, place: Place, cache_batch: int | None = None) -> None:
        super().__init__(
            (place.dim, place.memory_dim),
            config.inner(place.dim),
            config.heads,
            values=config.value_inner(place.dim),
            bias=config.projection_bias,
            fused=place.fused,
            scaled=config.scaled,
        )
        self.cache: MemoryCache | None = None
        if cache_batch is not None:
            keys, values = (width // config.heads for width in self.widths)
            tokens = (place.memory or place.grid).total
            self.cache = MemoryCache(cache_batch, config.heads, tokens, keys, value_width=values)

    def forward(self, x_BND: Tensor, *memory_BME: Tensor) -> Tensor:
        if self.cache is None:
            return super().forward(x_BND, *memory_BME)
        return self.attend(split_heads(self.q(x_BND), self.heads), *self.cache())


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
        self.core = latent_core(config, place, decodes=decodes)
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


def latent_core(config: Mla, place: Place, *, decodes: bool) -> Core:
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
