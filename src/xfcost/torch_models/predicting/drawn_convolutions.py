"""Convolutions that a calibration runs, forward and backward, of drawn sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xfcost.torch_models.predicting.draws import MOST_ELEMENTS, MOST_MACS, Draws

_MOST_WEIGHTS: Final = 2**26
_GROUP_WIDTHS: Final = (4, 8, 12, 16, 20, 24, 32, 48, 64, 112, 128, 232, 264)
# Of three convolutions one also runs on images in the memory format channels-last, and on tokens.
_CHANNELS_LAST: Final = 1 / 3
# Of three one also runs backward.
_BACKWARD: Final = 1 / 3


class Drawn(NamedTuple):
    """A convolution of a square image; `side` is that of its input."""

    inner: int
    outer: int
    side: int
    kernel: int
    stride: int
    groups: int = 1
    padded: bool = True

    @property
    def weights(self) -> tuple[int, int, int, int]:
        """Sizes of its kernels."""
        return self.outer, self.inner // self.groups, self.kernel, self.kernel

    @property
    def padding(self) -> int:
        """Zeros on each side."""
        return self.kernel // 2 if self.padded else 0

    @property
    def results(self) -> int:
        """Side of its output."""
        return (self.side + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def fits(self) -> bool:
        """Is it small enough to be run?"""
        weights = prod(self.weights)
        image = max(self.inner, self.outer) * self.side**2
        small = weights <= _MOST_WEIGHTS and image <= MOST_ELEMENTS
        return small and weights * (self.side / self.stride) ** 2 <= MOST_MACS


def convolutions(draws: Draws) -> Iterator[Callable[[], object]]:
    """Full, pointwise, grouped, depthwise convolutions, patches; and 3-D."""
    for draw, number in _KINDS.items():
        for _ in range(number):
            drawn = draw(draws)
            if drawn.fits:
                yield from _runs(draws, drawn)
    for _ in range(30):
        width, side, frames = draws.width(16, 1024), draws.size(2, 56), draws.size(1, 8)
        groups = draws.choice((1, width, width))
        weights = width * (width // groups) * 27
        if frames * side * side * weights <= MOST_MACS and width * frames * side * side < MOST_ELEMENTS:
            x, stride = draws.activation(1, width, frames, side, side), draws.choice(((1, 1, 1), (1, 2, 2)))
            sizes = width, width // groups, 3, 3, 3
            yield partial(_convolved, draws, F.conv3d, x, sizes, None, stride, 1, groups=groups)


def _runs(draws: Draws, drawn: Drawn) -> Iterator[Callable[[], object]]:
    x = draws.activation(1, drawn.inner, drawn.side, drawn.side)
    bias = draws.choice((None, draws.weight(drawn.outer)))
    arguments = drawn.weights, bias, drawn.stride, drawn.padding
    yield partial(_convolved, draws, F.conv2d, x, *arguments, groups=drawn.groups)
    if draws.random.random() < _CHANNELS_LAST:
        tokens = draws.tokens(drawn.inner, drawn.side)
        for last in (x.contiguous(memory_format=torch.channels_last), tokens):
            yield partial(_convolved, draws, F.conv2d, last, *arguments, groups=drawn.groups)
    if draws.random.random() < _BACKWARD:
        gradient = draws.activation(1, drawn.outer, drawn.results, drawn.results, after=MOST_ELEMENTS)
        needed = draws.choice(((True, True), (True, True), (False, True)))
        yield partial(_gradients, draws, gradient, x, drawn, (*needed, False))


def _convolved(
    draws: Draws, convolve: Callable[..., Tensor], x: Tensor, sizes: Sequence[int], *arguments: object, groups: int
) -> Tensor:
    return convolve(x, draws.weight(*sizes), *arguments, groups=groups)


def _gradients(draws: Draws, gradient: Tensor, x: Tensor, drawn: Drawn, needed: tuple[bool, bool, bool]) -> object:
    """The gradients of the image and of the kernels."""
    stride, padding = [drawn.stride] * 2, [drawn.padding] * 2
    return torch.ops.aten.convolution_backward(
        gradient, x, draws.weight(*drawn.weights), None, stride, padding, [1, 1], False, [0, 0], drawn.groups, needed
    )


def _kernel(draws: Draws) -> tuple[int, int]:
    """Its side, and its stride."""
    return draws.choice((3, 3, 3, 5, 7)), draws.choice((1, 1, 1, 2))


def _full(draws: Draws) -> Drawn:
    inner = draws.width(8, 1024)
    return Drawn(
        draws.choice((inner, inner, inner, 3)), draws.width(8, 1024), draws.size(1, 128), *_kernel(draws)
    )  # fmt: skip


def _pointwise(draws: Draws) -> Drawn:
    side = draws.choice((draws.size(1, 4), draws.size(1, 128)))
    return Drawn(draws.width(16, 8192), draws.width(16, 8192), side, 1, draws.choice((1, 1, 1, 2)))


def _grouped(draws: Draws) -> Drawn:
    groups = draws.size(2, 64)
    width = draws.choice(_GROUP_WIDTHS) * groups
    return Drawn(width, width, draws.size(1, 128), 3, draws.choice((1, 1, 1, 2)), groups)


def _depthwise(draws: Draws) -> Drawn:
    width = draws.width(8, 4096)
    return Drawn(width, width, draws.size(1, 128), *_kernel(draws), width)


def _patches(draws: Draws) -> Drawn:
    kernel = draws.choice((2, 4, 8, 14, 16, 32))
    return Drawn(3, draws.width(8, 1024), kernel * draws.size(2, 64), kernel, kernel, padded=False)


_KINDS: Final[Mapping[Callable[[Draws], Drawn], int]] = MappingProxyType({
    _full: 200, _pointwise: 480, _grouped: 300, _depthwise: 200, _patches: 24,
})  # fmt: skip
