"""Module of `mechanisms/compressive.py`.

B batch, N tokens of the segment, M keys, P positions of the memory, C of the compressed memory, S newly compressed, D
width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.compressive import Compressive
from xfcost.torch_models.mechanisms.relative import RelativeAttention
from xfcost.torch_models.shared.leaves import NO_TABLES, Linear, Tables


class Past(NamedTuple):
    """What a segment finds: the compressed memory, what the segment before evicted, and the memory."""

    compressed_BCD: Tensor
    evicted_BND: Tensor
    memory_BPD: Tensor


class CompressiveAttention(RelativeAttention):
    """(B, N, D) -> (B, N, D), with a past of which zeros stand where none is given."""

    evicted_1ND: Tensor

    def __init__(self, config: Compressive, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__(config, place, tables)
        self.slots = config.compressed_memory
        self.made = config.compressed(place)
        self.compress = compressor(config, self.made, place.dim)
        self.register_buffer("evicted_1ND", torch.zeros(1, place.grid.total, place.dim), persistent=False)

    def forward(self, x_BND: Tensor, past: Past | None = None) -> Tensor:  # type: ignore[override]
        past = self.standing(x_BND) if past is None else past
        memory = (past.memory_BPD.detach(),) if self.past > self.slots else ()
        return self.attend(x_BND, *self.compressed(past), *memory)

    def standing(self, x_BND: Tensor) -> Past:
        """Zeros, the past of a text's first segment."""
        zeros = self.memory_1PD.split([self.slots, self.past - self.slots], dim=1)
        parts = (zeros[0], self.evicted_1ND, zeros[1])
        return Past(*(part.expand(x_BND.shape[0], -1, -1) for part in parts))

    def compressed(self, past: Past) -> tuple[Tensor, ...]:
        """The compressed memory as this segment reads it, oldest first: what stays of the old one, and the new."""
        if not self.made:
            return (past.compressed_BCD.detach(),)
        new_BSD = self.compress(past.evicted_BND.detach())
        old = (past.compressed_BCD[:, self.made :].detach(),) if self.made < self.slots else ()
        return *old, new_BSD[:, -self.slots :]

    def remember(self, x_BND: Tensor, past: Past) -> Past:
        """What the next segment finds."""
        kept_BXD = torch.cat([past.memory_BPD, x_BND], dim=1)
        tokens = x_BND.shape[1]
        return Past(torch.cat(self.compressed(past), dim=1), kept_BXD[:, :tokens], kept_BXD[:, tokens:])


def compressor(config: Compressive, made: int, width: int) -> nn.Module:
    """(B, N, D) -> (B, S, D)."""
    if config.function == "conv":
        return ConvCompressor(config.compression, made, width)
    return PoolCompressor(config.compression, made, config.function)


class ConvCompressor(Linear):
    """A convolution whose kernel is its stride: a linear map of c positions side by side."""

    def __init__(self, compression: int, made: int, width: int) -> None:
        super().__init__(compression * width, width)
        self.groups = (made, compression)

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(grouped(x_BND, self.groups).flatten(2))


class PoolCompressor(nn.Module):
    """The mean or the maximum of c positions."""

    def __init__(self, compression: int, made: int, function: str) -> None:
        super().__init__()
        self.groups, self.function = (made, compression), function

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BSCD = grouped(x_BND, self.groups)
        return x_BSCD.mean(2) if self.function == "mean" else x_BSCD.amax(2)


def grouped(x_BND: Tensor, groups: tuple[int, int]) -> Tensor:
    """(B, N, D) -> (B, S, c, D), without the rest."""
    return x_BND[:, : groups[0] * groups[1]].unflatten(1, groups)
