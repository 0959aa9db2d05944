"""Single operations that a calibration runs: of each kind, sizes drawn from wide ranges.

Networks have some sizes only. Here they are random, uniform in their logarithm, so that no model is far from all of
them: images of one pixel, products of one row, batches of a hundred thousand tiny matrices. The draw is always the
same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_SEED: Final = 14
# No call has more MACs than this, nor a tensor more elements.
_MOST_MACS: Final = 2e9
_MOST_ELEMENTS: Final = 2**25
_STORE: Final = 2**27
# Each operation runs so many times in a row: the first time, a library may compile its kernel.
_TIMES: Final = 3
_ELEMENTS: Final = tuple(2**power for power in range(8, 25, 2))

Operation = Callable[[], object]


class Operations(nn.Module):
    """All of them in one forward.

    Activations are parts of the store's beginning, which the calls before have left in the caches; weights are parts
    of the rest, in turn, and are found in memory, as they are in a model.
    """

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self._draw = random.Random(_SEED)  # noqa: S311 - sizes
        self._store = torch.randn(_STORE, dtype=dtype, device=device)
        self._next = _MOST_ELEMENTS * 2
        makers = (
            self._products, self._batched, self._convolutions, self._attention, self._lines, self._elementwise,
            self._pools, self._lookups,
        )  # fmt: skip
        self.operations = [operation for make in makers for operation in make()]

    def forward(self) -> None:
        for operation in self.operations:
            for _ in range(_TIMES):
                operation()

    def _size(self, least: int, most: int, step: int = 1) -> int:
        """A multiple of `step` between them, uniform in its logarithm."""
        return max(round(least * (most / least) ** self._draw.random() / step), 1) * step

    def _activation(self, *sizes: int, after: int = 0) -> Tensor:
        return self._store[after : after + prod(sizes)].view(sizes)

    def _weight(self, *sizes: int) -> Tensor:
        if self._next + prod(sizes) > _STORE:
            self._next = _MOST_ELEMENTS * 2
        start, self._next = self._next, self._next + prod(sizes)
        return self._store[start : self._next].view(sizes)

    def _linear(self, x: Tensor, sizes: tuple[int, int], bias: Tensor | None = None) -> Tensor:
        weight = self._weight(*sizes).t()
        return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)

    def _convolved(
        self, convolve: Callable[..., Tensor], x: Tensor, sizes: Sequence[int], *arguments: Any, groups: int
    ) -> Tensor:
        return convolve(x, self._weight(*sizes), *arguments, groups=groups)

    def _products(self) -> Iterator[Operation]:
        """x·Wᵀ + b."""
        for _ in range(320):
            rows, inner, columns = self._size(1, 16384), self._size(16, 16384, 8), self._size(16, 32768, 8)
            if rows * inner * columns > _MOST_MACS or max(inner, rows) * columns > _MOST_ELEMENTS:
                continue
            x, bias, shape = self._activation(rows, inner), self._weight(columns), (columns, inner)
            yield partial(self._linear, x, shape, bias)
            if rows * inner * columns < _MOST_MACS / 10:
                yield partial(self._linear, x, shape)

    def _batched(self) -> Iterator[Operation]:
        """Batches of products of activations: scores and weighted values of heads and windows."""
        for number in range(700):
            if number % 3 == 0:
                sizes = self._size(1, 4096), self._size(1, 4096), self._size(8, 256, 4), self._size(1, 4096)
            else:
                sizes = self._size(64, 200_000), self._size(1, 64), self._size(4, 64), self._size(1, 64)
            batch, rows, inner, columns = sizes
            if number % 4 > 1:
                inner, columns = columns, inner
            tensors = batch * rows * inner, batch * inner * columns, batch * rows * columns
            if prod(sizes) > _MOST_MACS or max(tensors) > _MOST_ELEMENTS / 2:
                continue
            left = self._activation(batch, rows, inner)
            right, turned = (
                self._activation(batch, *each, after=tensors[0]) for each in ((inner, columns), (columns, inner))
            )
            yield partial(torch.bmm, left, right)
            yield partial(torch.bmm, left, turned.transpose(1, 2))
            if number % 5 == 0:
                yield partial(torch.bmm, self._activation(batch, inner, rows).transpose(1, 2), right)

    def _convolutions(self) -> Iterator[Operation]:
        """Full, pointwise, grouped, depthwise convolutions, patches; and 3-D."""
        for kind, number in (("full", 200), ("point", 450), ("grouped", 300), ("depthwise", 200), ("patches", 24)):
            for _ in range(number):
                yield from self._convolution(kind)
        for _ in range(30):
            width, kernel, side, frames = self._size(16, 1024, 8), 3, self._size(2, 56), self._size(1, 8)
            groups = self._draw.choice((1, width, width))
            sizes = (width, width // groups, *(kernel,) * 3)
            if frames * side * side * prod(sizes) <= _MOST_MACS and width * frames * side * side < _MOST_ELEMENTS:
                x, stride = self._activation(1, width, frames, side, side), self._draw.choice(((1, 1, 1), (1, 2, 2)))
                yield partial(self._convolved, F.conv3d, x, sizes, None, stride, 1, groups=groups)

    def _convolution(self, kind: str) -> Iterator[Operation]:
        inner, outer, side = self._size(8, 1024, 8), self._size(8, 1024, 8), self._size(1, 128)
        groups, kernel, stride = 1, self._draw.choice((3, 3, 3, 5, 7)), self._draw.choice((1, 1, 1, 2))
        if kind == "full":
            inner = self._draw.choice((inner, inner, inner, 3))
        elif kind == "point":
            inner, outer, kernel = self._size(16, 4096, 8), self._size(16, 4096, 8), 1
            side = self._draw.choice((self._size(1, 4), side))
        elif kind == "grouped":
            each, groups, kernel = (
                self._draw.choice((4, 8, 16, 24, 32, 48, 64, 112, 128, 232, 264)),
                self._size(2, 64),
                3,
            )
            inner = outer = each * groups
        elif kind == "depthwise":
            inner = outer = groups = self._size(8, 4096, 8)
        else:
            inner, kernel = 3, self._draw.choice((2, 4, 8, 14, 16, 32))
            side, stride = kernel * self._size(2, 64), kernel
        weights = outer * (inner // groups) * kernel**2
        if weights * (side / stride) ** 2 > _MOST_MACS or max(weights, max(inner, outer) * side**2) > _MOST_ELEMENTS:
            return
        x, sizes = self._activation(1, inner, side, side), (outer, inner // groups, kernel, kernel)
        padding, bias = 0 if kind == "patches" else kernel // 2, self._draw.choice((None, self._weight(outer)))
        yield partial(self._convolved, F.conv2d, x, sizes, bias, stride, padding, groups=groups)
        if self._draw.random() < 1 / 3:
            last = x.contiguous(memory_format=torch.channels_last)
            yield partial(self._convolved, F.conv2d, last, sizes, bias, stride, padding, groups=groups)

    def _attention(self) -> Iterator[Operation]:
        """Fused attention, plain and causal."""
        for number in range(80):
            heads, width = self._size(1, 64), self._draw.choice((32, 64, 64, 80, 128))
            queries = self._size(16, 4096)
            keys = queries if number % 4 else self._size(16, 4096)
            if 2 * heads * queries * keys * width > _MOST_MACS:
                continue
            q = self._activation(1, heads, queries, width)
            k, v = (self._activation(1, heads, keys, width, after=place * heads * keys * width) for place in (1, 2))
            causal = number % 3 == 0 and queries == keys
            yield partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)

    def _lines(self) -> Iterator[Operation]:
        """Softmax, norms, sums along lines."""
        for _ in range(60):
            line, rows = self._size(4, 8192), self._size(1, 2**18)
            if line * rows > _MOST_ELEMENTS:
                continue
            x = self._activation(rows, line)
            yield from (partial(function, x, -1) for function in (torch.softmax, torch.sum, torch.mean))
            yield partial(F.layer_norm, x, x.shape[-1:])

    def _elementwise(self) -> Iterator[Operation]:
        functions = (torch.relu, F.gelu, F.silu, torch.exp, torch.sigmoid, torch.tanh, torch.neg)
        for elements in _ELEMENTS:
            x = self._activation(elements)
            yield from (partial(function, x) for function in functions)
            yield partial(torch.mul, x, 2.0)
            yield partial(torch.cat, [x, x])
        for _ in range(70):
            sizes = self._size(1, 512), self._size(1, 4096), self._size(2, 4096)
            if prod(sizes) > _MOST_ELEMENTS:
                continue
            x, others = self._activation(*sizes), list(self._operands(*sizes))
            yield from (partial(torch.add, x, other) for other in others)
            yield from (partial(torch.mul, x, other) for other in others[:2])
            views = x.transpose(1, 2), x.transpose(0, 1), x[..., : x.shape[-1] // 2 + 1]
            yield from (view.contiguous for view in views)

    def _operands(self, batch: int, rows: int, columns: int) -> Iterator[Tensor]:
        """What is added to a (batch, rows, columns) tensor: another, transposed, biases, position biases."""
        yield (
            self._weight(batch, rows, columns)
            if batch * rows * columns < _STORE // 8
            else self._activation(batch, rows, columns, after=_MOST_ELEMENTS)
        )
        yield self._weight(columns)
        yield self._activation(batch, columns, rows, after=_MOST_ELEMENTS).transpose(1, 2)
        yield self._activation(columns, rows).t()
        yield self._activation(rows, columns)
        yield self._activation(batch, rows, 1)

    def _pools(self) -> Iterator[Operation]:
        pools: tuple[Callable[..., Tensor], ...] = (F.max_pool2d, F.avg_pool2d)
        for _ in range(50):
            width, side = self._size(8, 1024, 8), self._size(2, 160)
            kernel = self._draw.choice((2, 3, 3, 4))
            if width * side**2 > _MOST_ELEMENTS or side < kernel:
                continue
            x, stride = self._activation(1, width, side, side), self._draw.choice((1, 2, kernel))
            last = x.contiguous(memory_format=torch.channels_last)
            for image, pool in product((x, last), pools):
                yield partial(pool, image, kernel, stride, kernel // 2)

    def _lookups(self) -> Iterator[Operation]:
        """Rows within a batch, and elements by one and two indices, neighbours in a row as in windows."""
        for _ in range(140):
            batch, rows, run = self._size(1, 512), self._size(4, 4096), self._size(1, 256)
            chosen = self._size(4, 40_000)
            if max(batch * rows * run, batch * chosen * run) > _MOST_ELEMENTS:
                continue
            x, square = self._activation(batch, rows, run), self._activation(batch, run, rows)
            window = self._draw.choice((3, 5, 7))
            places = torch.arange(chosen, device=x.device)
            one = (places // window + places % window) % rows
            yield partial(x.__getitem__, (slice(None), one))
            yield partial(x.__getitem__, (one % batch, one))
            yield partial(square.__getitem__, (..., one))
            side = max(int(rows**0.5), 1)
            image = self._activation(batch, run, side, side)
            yield partial(image.__getitem__, (slice(None), slice(None), one // side % side, one % side))
