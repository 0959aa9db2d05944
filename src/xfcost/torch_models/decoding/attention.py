"""Attention for one token more, its past cached: `mechanisms/{full,sliding,cross}.py`, `decoding`.

B batch, N tokens with the new one, M tokens that it reads, D width, H heads, G heads of keys and values, K head width,
V of values. Parameters stand under the names that the modules of all N tokens give them.
"""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.buckets import Buckets
from xfcost.formulas.component import Place
from xfcost.formulas.grouped import Grouped
from xfcost.mechanisms.cross import Cross
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.sliding import Sliding
from xfcost.torch_models.mechanisms.cross import CrossAttention
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.cache import KeyValueCache, Positioned, Remembered
from xfcost.torch_models.shared.grouped import GroupedHeads
from xfcost.torch_models.shared.leaves import Linear, Tables, join_heads, split_heads, weight_of
from xfcost.torch_models.shared.positions import BucketBias, Rotary, alibi


class RotaryAt(Rotary, Positioned):
    """One token's: (B, H, 1, K) -> (B, H, 1, K)."""

    def forward(self, x_BH1K: Tensor) -> Tensor:
        cos_K, sin_K = self.cos_NK[self.position], self.sin_NK[self.position]
        return x_BH1K * cos_K + x_BH1K.roll(self.reach, dims=-1) * sin_K


class BucketBiasAt(BucketBias, Positioned):
    """The last token's distances to all: -> (H, 1, M)."""

    def forward(self) -> Tensor:
        last = self.tokens
        return weight_of(self)[self.rows_T[last - 1 - self.position : last]].transpose(0, 1)[:, None]


class StepHeads(GroupedHeads):
    """Projections of one token, at its position among N."""

    def __init__(self, config: Grouped, width: int, tokens: int) -> None:
        super().__init__(config, width, 1)
        if config.position == "rope":
            self.rotary = RotaryAt(tokens, config.inner(width) // config.heads, config.rope_base)


class FullStep(StepHeads, Positioned):
    """(B, 1, D) -> (B, 1, D)."""

    alibi_H1N: Tensor

    def __init__(self, config: Full, place: Place, batch: int, tables: Tables) -> None:
        tokens = place.grid.total
        super().__init__(config, place.dim, tokens)
        self.relative_bias = bias_at(config.bias, tokens, config.heads, tables) if config.bias else None
        self.falls = config.position == "alibi"
        if self.falls:
            self.register_buffer("alibi_H1N", alibi(tokens, config.heads), persistent=False)
        self.cache = KeyValueCache(batch, self.heads[1], tokens, self.kept)
        self.core = one_query(config, place, biased=config.biased, scaled=config.scaled)
        wide = config.value_inner(place.dim)
        self.out = Linear(wide, place.dim, bias=config.biased_output) if config.output_projection else None

    def forward(self, x_B1D: Tensor) -> Tensor:
        q_BH1K, k_BG1K, v_BG1V = self.projected(x_B1D)
        bias_H1M = self._bias()
        read = self.cache(k_BG1K, v_BG1V)
        y_B1D = join_heads(self.core(q_BH1K, *read, *(() if bias_H1M is None else (bias_H1M,))))
        return y_B1D if self.out is None else self.out(y_B1D)

    def _bias(self) -> Tensor | None:
        """What is added to the scores: (H, 1, M)."""
        if self.relative_bias is not None:
            bias_H1M: Tensor = self.relative_bias()
            return bias_H1M
        return self.alibi_H1N[..., : self.position + 1] if self.falls else None


class SlidingStep(StepHeads):
    """(B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: Sliding, place: Place, batch: int, tables: Tables) -> None:
        tokens, inner, bias = place.grid.total, config.inner(place.dim), config.projection_bias
        super().__init__(config, place.dim, tokens)
        if config.own_projections:  # kept, and unused: global tokens are never causal
            self.global_q = Linear(place.dim, inner, bias=bias)
            self.global_kv = Linear(place.dim, 2 * inner, bias=bias)
        rows = min(config.window, -(-tokens // config.dilation))
        self.cache = KeyValueCache(batch, self.heads[1], rows, self.kept, classes=config.dilation)
        self.core = one_query(config, place)
        self.out = Linear(inner, place.dim, bias=bias)

    def forward(self, x_B1D: Tensor) -> Tensor:
        q_BH1K, k_BG1K, v_BG1K = self.projected(x_B1D)
        return self.out(join_heads(self.core(q_BH1K, *self.cache(k_BG1K, v_BG1K))))


class CrossStep(CrossAttention):
    """(B, 1, D) -> (B, 1, D), the memory's keys and values being there."""

    def __init__(self, config: Cross, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config, place, tables)
        memory = place.memory or place.grid
        keys, values = (width // config.heads for width in self.widths)
        self.cache = Remembered(batch, config.heads, memory.total, keys, value_width=values)

    def remember(self, memory_BME: Tensor) -> None:
        """Work out what every token will read of `memory_BME`."""
        self.cache.keys, self.cache.values = self.keys_and_values(memory_BME)

    def forward(self, x_B1D: Tensor) -> Tensor:  # type: ignore[override]
        q_BH1K = split_heads(self.q(x_B1D), self.heads)
        read_B1D = join_heads(self.core(q_BH1K, *self.cache()))
        return read_B1D if self.out is None else self.out(read_B1D)


def one_query(config: Grouped, place: Place, *, biased: bool = False, scaled: bool = True) -> Core:
    """The core where one token asks: all that it reads is there, and nothing is masked."""
    width = config.inner(place.dim) // config.heads
    return Core(width, fused=place.fused, biased=biased, scaled=scaled, shared=config.shared)


def bias_at(buckets: Buckets, tokens: int, heads: int, tables: Tables) -> BucketBiasAt:
    """The causal module's table, or the shared one, asked by one token."""
    return BucketBiasAt(buckets, tokens, heads, tables[buckets.share] if buckets.share else None, causal=True)
