"""Single operations that a calibration runs: of each kind, sizes drawn from wide ranges.

Networks have some sizes only. Here they are random, uniform in their logarithm, so that no model is far from all of
them: images of one pixel, products of one row, batches of a hundred thousand tiny matrices. The draw is always the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.torch_models.predicting.drawn_convolutions import convolutions
from xfcost.torch_models.predicting.draws import MOST_ELEMENTS, MOST_MACS, STORE, Draws

# Each operation runs so many times in a row: the first time, a library may compile its kernel.
_TIMES: Final = 3
_ELEMENTS: Final = tuple(2**power for power in range(8, 25, 2))

Operation = Callable[[], object]


class Operations(nn.Module):
    """All of them in one forward."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        self._draws = Draws(dtype, device)
        makers = (
            self._products, self._batched, partial(convolutions, self._draws), self._attention, self._lines,
            self._elementwise, self._pools, self._lookups,
        )  # fmt: skip
        self.operations = [operation for make in makers for operation in make()]

    def forward(self) -> None:
        for operation in self.operations:
            for _ in range(_TIMES):
                operation()

    def _linear(self, x: Tensor, sizes: tuple[int, int], bias: Tensor | None = None) -> Tensor:
        weight = self._draws.weight(*sizes).t()
        return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)

    def _products(self) -> Iterator[Operation]:
        """x·Wᵀ + b."""
        for _ in range(320):
            rows, inner, columns = (
                self._draws.size(1, 16384),
                self._draws.size(16, 16384, 8),
                self._draws.size(16, 32768, 8),
            )
            if rows * inner * columns > MOST_MACS or max(inner, rows) * columns > MOST_ELEMENTS:
                continue
            x, bias, shape = self._draws.activation(rows, inner), self._draws.weight(columns), (columns, inner)
            yield partial(self._linear, x, shape, bias)
            if rows * inner * columns < MOST_MACS / 10:
                yield partial(self._linear, x, shape)

    def _batched(self) -> Iterator[Operation]:
        """Batches of products of activations: scores and weighted values of heads and windows."""
        for number in range(700):
            if number % 3 == 0:
                sizes = (
                    self._draws.size(1, 4096),
                    self._draws.size(1, 4096),
                    self._draws.size(8, 256, 4),
                    self._draws.size(1, 4096),
                )
            else:
                sizes = (
                    self._draws.size(64, 200_000),
                    self._draws.size(1, 64),
                    self._draws.size(4, 64),
                    self._draws.size(1, 64),
                )
            batch, rows, inner, columns = sizes
            if number % 4 > 1:
                inner, columns = columns, inner
            tensors = batch * rows * inner, batch * inner * columns, batch * rows * columns
            if prod(sizes) > MOST_MACS or max(tensors) > MOST_ELEMENTS / 2:
                continue
            left = self._draws.activation(batch, rows, inner)
            right, turned = (
                self._draws.activation(batch, *each, after=tensors[0]) for each in ((inner, columns), (columns, inner))
            )
            yield partial(torch.bmm, left, right)
            yield partial(torch.bmm, left, turned.transpose(1, 2))
            if number % 5 == 0:
                yield partial(torch.bmm, self._draws.activation(batch, inner, rows).transpose(1, 2), right)

    def _attention(self) -> Iterator[Operation]:
        """Fused attention, plain and causal."""
        for number in range(80):
            heads, width = self._draws.size(1, 64), self._draws.choice((32, 64, 64, 80, 128))
            queries = self._draws.size(16, 4096)
            keys = queries if number % 4 else self._draws.size(16, 4096)
            if 2 * heads * queries * keys * width > MOST_MACS:
                continue
            q = self._draws.activation(1, heads, queries, width)
            k, v = (
                self._draws.activation(1, heads, keys, width, after=place * heads * keys * width) for place in (1, 2)
            )
            causal = number % 3 == 0 and queries == keys
            yield partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)

    def _lines(self) -> Iterator[Operation]:
        """Softmax, norms, sums along lines."""
        for _ in range(60):
            line, rows = self._draws.size(4, 8192), self._draws.size(1, 2**18)
            if line * rows > MOST_ELEMENTS:
                continue
            x = self._draws.activation(rows, line)
            yield from (partial(function, x, -1) for function in (torch.softmax, torch.sum, torch.mean))
            yield partial(F.layer_norm, x, x.shape[-1:])

    def _elementwise(self) -> Iterator[Operation]:
        functions = (torch.relu, F.gelu, F.silu, torch.exp, torch.sigmoid, torch.tanh, torch.neg)
        for elements in _ELEMENTS:
            x = self._draws.activation(elements)
            yield from (partial(function, x) for function in functions)
            yield partial(torch.mul, x, 2.0)
            yield partial(torch.cat, [x, x])
        for _ in range(110):
            sizes = self._draws.size(1, 512), self._rows(), self._rows()
            if prod(sizes) > MOST_ELEMENTS:
                continue
            x, others = self._draws.activation(*sizes), list(self._operands(*sizes))
            yield from (partial(torch.add, x, other) for other in others)
            yield from (partial(torch.mul, x, other) for other in others[:2])
            views = x.transpose(1, 2), x.transpose(0, 1), x[..., : x.shape[-1] // 2 + 1]
            yield from (view.contiguous for view in views)

    def _rows(self) -> int:
        """Any number, or one that channels have."""
        return self._draws.choice((self._draws.size(1, 4096), self._draws.width(8, 4096)))

    def _operands(self, batch: int, rows: int, columns: int) -> Iterator[Tensor]:
        """What is added to a (batch, rows, columns) tensor: another, transposed, biases, position biases."""
        yield (
            self._draws.weight(batch, rows, columns)
            if batch * rows * columns < STORE // 8
            else self._draws.activation(batch, rows, columns, after=MOST_ELEMENTS)
        )
        yield self._draws.weight(columns)
        yield self._draws.activation(batch, columns, rows, after=MOST_ELEMENTS).transpose(1, 2)
        yield self._draws.activation(columns, rows).t()
        yield self._draws.activation(rows, columns)
        yield self._draws.activation(batch, rows, 1)

    def _pools(self) -> Iterator[Operation]:
        pools: tuple[Callable[..., Tensor], ...] = (F.max_pool2d, F.avg_pool2d)
        for _ in range(50):
            width, side = self._draws.width(8, 1024), self._draws.size(2, 160)
            kernel = self._draws.choice((2, 3, 3, 4))
            if width * side**2 > MOST_ELEMENTS or side < kernel:
                continue
            x, stride = self._draws.activation(1, width, side, side), self._draws.choice((1, 2, kernel))
            last = x.contiguous(memory_format=torch.channels_last)
            for image, pool in product((x, last, self._draws.tokens(width, side)), pools):
                yield partial(pool, image, kernel, stride, kernel // 2)

    def _lookups(self) -> Iterator[Operation]:
        """Rows within a batch, and elements by one and two indices, neighbours in a row as in windows."""
        for _ in range(140):
            batch, rows, run = self._draws.size(1, 512), self._draws.size(4, 4096), self._draws.size(1, 256)
            chosen = self._draws.size(4, 40_000)
            if max(batch * rows * run, batch * chosen * run) > MOST_ELEMENTS:
                continue
            x, square = self._draws.activation(batch, rows, run), self._draws.activation(batch, run, rows)
            window = self._draws.choice((3, 5, 7))
            places = torch.arange(chosen, device=x.device)
            one = (places // window + places % window) % rows
            yield partial(x.__getitem__, (slice(None), one))
            yield partial(x.__getitem__, (one % batch, one))
            yield partial(square.__getitem__, (..., one))
            side = max(int(rows**0.5), 1)
            image = self._draws.activation(batch, run, side, side)
            yield partial(image.__getitem__, (slice(None), slice(None), one // side % side, one % side))
