"""Module of `mechanisms/full.py`: attention of a decoder's tokens to the encoder's output.

B batch, N tokens, M tokens of the memory, D width, E the memory's width.
"""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place
from xfcost.mechanisms.full import Cross
from xfcost.torch_models.shared.cache import MemoryCache
from xfcost.torch_models.shared.leaves import split_heads
from xfcost.torch_models.shared.reading import Reading


class CrossAttention(Reading):
    """(B, N, D), memory (B, M, E) -> (B, N, D). A decode step, (B, 1, D) -> (B, 1, D), reads cached keys and values."""

    def __init__(self, config: Cross, place: Place, cache_batch: int | None = None) -> None:
        super().__init__(
            place.dim,
            place.memory_dim,
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
