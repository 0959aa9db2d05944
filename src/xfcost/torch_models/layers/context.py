"""Module of `layers/shift.py`: adds the encoder's token at the same position. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.shift import Context
from xfcost.torch_models.shared.cache import Cache
from xfcost.torch_models.shared.leaves import Add
from xfcost.torch_models.shared.shift import ByOne


class ContextLayer(nn.Module):
    """(B, N, D), memory (B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with the memory cached."""

    def __init__(self, config: Context, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        self.shift = ByOne(config.shift, place) if config.shift else None
        self.cache = None if cache_batch is None else TokenOfMemory(cache_batch, place.grid.total, place.dim)
        self.add = Add()

    def forward(self, x_BND: Tensor, *memory_BND: Tensor) -> Tensor:
        leaf = self.cache or self.shift
        return self.add(x_BND, *(memory_BND if leaf is None else (leaf(*memory_BND),)))


class TokenOfMemory(Cache):
    """The memory token at the current position: -> (B, 1, D)."""

    memory_BND: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_buffer("memory_BND", *shape)

    def forward(self) -> Tensor:
        return self.memory_BND[:, self.position : self.position + 1]
