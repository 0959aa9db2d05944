"""Softmax attention to all tokens: of all, of the special tokens alone, or of a decoder to its encoder's output.

B batch, N tokens, E special tokens among them (of a memory: its width), M tokens of the memory, D width, H heads, K
head width, V of values.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.full import ClassAttention, Cross, Full
from xfcost.torch_models.shared.attention import BucketBias, BucketBiasAtPosition, Core, GroupedHeads, Reading, alibi
from xfcost.torch_models.shared.cache import KeyValueCache, MemoryCache
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
    split_heads,
)


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
