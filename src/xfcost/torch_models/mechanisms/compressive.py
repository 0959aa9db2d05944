"""Module of `mechanisms/compressive.py`: attention to a segment, its memory and its compressed memory.

B batch, N tokens of the segment, M keys, P positions of the memory, C of the compressed memory, S newly compressed, D
width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.compressive import Compressive
from xfcost.torch_models.mechanisms.relative import TransformerXlAttention
from xfcost.torch_models.shared.leaves import NO_TABLES, Leaf, Linear, Tables


class CompressivePast(NamedTuple):
    """The state at the start of a segment: compressed memory, tokens evicted by the previous segment, memory."""

    compressed_BCD: Tensor
    evicted_BND: Tensor
    memory_BPD: Tensor


class CompressiveAttention(TransformerXlAttention):
    """(B, N, D) -> (B, N, D). Without a given past, the past is zeros."""

    evicted_1ND: Tensor

    def __init__(self, config: Compressive, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__(config, place, tables)
        self.slots = config.compressed_memory
        self.made = config.compressed(place)
        self.compress = compressor(config, self.made, place.dim)
        self.register_buffer("evicted_1ND", torch.zeros(1, place.grid.total, place.dim), persistent=False)

    def forward(self, x_BND: Tensor, past: CompressivePast | None = None) -> Tensor:  # type: ignore[override]
        past = self.standing(x_BND) if past is None else past
        memory = (past.memory_BPD.detach(),) if self.past > self.slots else ()
        return self.attend(x_BND, *self.compressed(past), *memory)

    @property
    def remembered(self) -> tuple[Tensor, ...]:
        return (self.memory_1PD, self.evicted_1ND)

    def standing(self, x_BND: Tensor) -> CompressivePast:
        """Zeros: the past of the first segment."""
        zeros = self.memory_1PD.split([self.slots, self.past - self.slots], dim=1)
        parts = (zeros[0], self.evicted_1ND, zeros[1])
        return CompressivePast(*(part.expand(x_BND.shape[0], -1, -1) for part in parts))

    def compressed(self, past: CompressivePast) -> tuple[Tensor, ...]:
        """The compressed memory that this segment reads, oldest first: retained old entries, then new ones."""
        if not self.made:
            return (past.compressed_BCD.detach(),)
        new_BSD = self.compress(past.evicted_BND.detach())
        old = (past.compressed_BCD[:, self.made :].detach(),) if self.made < self.slots else ()
        return *old, new_BSD[:, -self.slots :]

    def remember(self, x_BND: Tensor, past: CompressivePast) -> CompressivePast:
        """The past of the next segment."""
        kept_BXD = torch.cat([past.memory_BPD, x_BND], dim=1)
        tokens = x_BND.shape[1]
        return CompressivePast(torch.cat(self.compressed(past), dim=1), kept_BXD[:, :tokens], kept_BXD[:, tokens:])


def compressor(config: Compressive, made: int, width: int) -> nn.Module:
    """The module that compresses evicted tokens: (B, N, D) -> (B, S, D)."""
    if config.function == "conv":
        return ConvCompressor(config.compression, made, width)
    return Leaf(pooled, groups=(made, config.compression), function=config.function)


class ConvCompressor(Linear):
    """A convolution whose stride is its kernel size: a linear map of c adjacent positions."""

    def __init__(self, compression: int, made: int, width: int) -> None:
        super().__init__(compression * width, width)
        self.groups = (made, compression)

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(grouped(x_BND, self.groups).flatten(2))


def pooled(x_BND: Tensor, *, groups: tuple[int, int], function: str) -> Tensor:
    """The mean or the maximum of c positions."""
    x_BSCD = grouped(x_BND, groups)
    return x_BSCD.mean(2) if function == "mean" else x_BSCD.amax(2)


def grouped(x_BND: Tensor, groups: tuple[int, int]) -> Tensor:
    """Groups of c adjacent positions: (B, N, D) -> (B, S, c, D). An incomplete last group is dropped."""
    return x_BND[:, : groups[0] * groups[1]].unflatten(1, groups)
