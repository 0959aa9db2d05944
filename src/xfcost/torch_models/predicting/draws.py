"""Random sizes and tensors of the single operations that a calibration runs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import log2, prod
from typing import Final, TypeVar

import torch
from torch import Tensor

_SEED: Final = 14
# No call has more MACs than this, nor a tensor more elements.
MOST_MACS: Final = 2e9
MOST_ELEMENTS: Final = 2**25
STORE: Final = 2**27

T = TypeVar("T")


class Draws:
    """Draws sizes, always the same ones, and hands out tensors.

    Activations are parts of the store's beginning, which the calls before have left in the caches; weights are parts
    of the rest, in turn, and are found in memory, as they are in a model.
    """

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self.random = random.Random(_SEED)  # noqa: S311 - sizes
        self._store = torch.randn(STORE, dtype=dtype, device=device)
        self._next = MOST_ELEMENTS * 2

    def size(self, least: int, most: int, step: int = 1) -> int:
        """A multiple of `step` between them, uniform in its logarithm."""
        return max(round(least * (most / least) ** self.random.random() / step), 1) * step

    def width(self, least: int, most: int) -> int:
        """Of channels: half of them a multiple of 8, the others a power of two or three times one, as in models."""
        found = self.size(least, most, 8)
        if self.choice((True, False)):
            return found
        power = 2 ** int(log2(found))
        return self.choice((power, power, max(power // 4, 8) * 3))

    def choice(self, among: Sequence[T]) -> T:
        """One of them."""
        return self.random.choice(among)

    def activation(self, *sizes: int, after: int = 0) -> Tensor:
        """The same memory each time, from the element `after` on."""
        return self._store[after : after + prod(sizes)].view(sizes)

    def tokens(self, width: int, side: int) -> Tensor:
        """Tokens (Y·X, C) looked at as one image (1, C, Y, X): kernels of images copy it."""
        return self.activation(side * side, width).t().view(1, width, side, side)

    def weight(self, *sizes: int) -> Tensor:
        """Memory that no call has used for long."""
        if self._next + prod(sizes) > STORE:
            self._next = MOST_ELEMENTS * 2
        start, self._next = self._next, self._next + prod(sizes)
        return self._store[start : self._next].view(sizes)
