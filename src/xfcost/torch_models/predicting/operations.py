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
from math import log2, prod
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.ledger.execution import Execution, Mode
from xfcost.parts.training.result import RunPlan
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

_ONE = ("stages.0.depth=1",)
_TWO = ("stages.0.depth=2",)
_FEW_WORDS = (*_ONE, "input.vocabulary=1000")
_ENCODER_DECODER = ("encoder.stages.0.depth=1", "decoder.stages.0.depth=1")


class Trial(NamedTuple):
    """A network that a calibration runs: a preset, or one with fewer blocks, at several N; None is its own."""

    preset: str
    tokens: Sequence[int | None] = (None,)
    settings: Sequence[str] = ()
    attention: Sequence[Execution] = ("eager",)
    mode: Mode = "forward"
    optimizer: str = "adamw"


def _trained(
    preset: str, tokens: int | None = None, settings: Sequence[str] = (), optimizer: str = "adamw",
    attention: Execution = "eager",
) -> Trial:  # fmt: skip
    return Trial(preset, (tokens,), settings, (attention,), "train", optimizer)


NETWORKS: Final = (
    Trial("vit-s16", (49, 196, 784, 3136), _ONE, ("eager", "fused")), Trial("vit-ti16", (196, 1024), _ONE),
    Trial("vit-b32", (49, 784), _ONE), Trial("gpt2", (128, 512), _ONE, ("eager", "fused")),
    Trial("gpt2", (128, 1024), _TWO, mode="decode"), Trial("llama3.2-1b", (49,), _ONE),
    Trial("llama3.2-1b", (512,), _ONE, mode="decode"), Trial("bert-base", (196, 512), _ONE),
    Trial("swin-t", (196, 784, 3136)), Trial("swinv2-t-w8-256"), Trial("convnext-t", (196, 784)),
    Trial("convnext-iso-s", (196, 784), _TWO), Trial("mixer-s32"), Trial("mixer-b16", settings=_ONE),
    Trial("resmlp-s12", settings=_TWO), Trial("gmlp-ti", settings=_TWO), Trial("resnet-50", (784, 3136)),
    Trial("resnet-18", (196, 3136)), Trial("resnext-50-32x4d"), Trial("regnety-800mf"), Trial("regnetx-1.6gf"),
    Trial("regnetx-400mf", (49, 784)), Trial("regnety-400mf", (196,)), Trial("cait-xxs24", (196, 576)),
    Trial("deit3-m", settings=_ONE), Trial("pvt-tiny"), Trial("pvt-v2-b1"), Trial("twins-svt-s"),
    Trial("twins-pcpvt-s"), Trial("mvit-b-16"), Trial("mvitv2-t"), Trial("poolformer-s12"), Trial("mobilevit-xs"),
    Trial("cvt-13"), Trial("conformer-s", (784,), _ONE), Trial("sasa-26", (784,)), Trial("t5-small", (196,)),
    Trial("transformer-base", (196, 784), _ENCODER_DECODER), Trial("mamba-130m", (196,), _ONE),
    Trial("mamba2-130m", (196, 512), _ONE), Trial("retnet-base", (784,), _ONE), Trial("rwkv4-169m", (196,), _ONE),
    Trial("hyena-125m", (784,), _ONE), Trial("switch-base-8", (98,)), Trial("seq2seq-lstm", (49,)),
    Trial("longformer-char-small", (512,)),
    *(
        Trial(f"common-{name}", (784, 2048), _ONE)
        for name in (
            "longformer", "linformer", "reformer", "sinkhorn", "bigbird", "routing", "nystrom", "conv", "fnet",
            "compressed", "axial", "performer", "linear", "memory-tokens", "sparse-strided", "set-transformer",
        )
    ),
    Trial("common-synthesizer", (196,), _ONE), Trial("common-lstm", (196,), _ONE),
)  # fmt: skip


TRAINED: Final = (
    _trained("vit-ti16", 196), _trained("vit-ti16", 784, _TWO), _trained("vit-ti16", 196, attention="fused"),
    _trained("vit-s16", 784, _ONE, attention="fused"), _trained("vit-s16", 196, optimizer="sgd"),
    _trained("vit-b32", 49, _TWO, "momentum"), _trained("vit-b32", 98, _ONE, "adafactor"),
    _trained("vit-ti32", 49, optimizer="lion"), _trained("gpt2", 128, _ONE),
    _trained("gpt2", 49, _ONE, "adafactor", "fused"), _trained("bert-base", 196, _ONE),
    _trained("transformer-base", 98, _ENCODER_DECODER), _trained("swin-t", 196),
    _trained("swinv2-t-w8-256", None, optimizer="sgd"), _trained("convnext-t", 196),
    _trained("convnext-iso-s", 784, _TWO, "lion"), _trained("resnet-18", 196),
    _trained("resnet-50", 784, optimizer="momentum"), _trained("regnety-400mf", 784),
    _trained("regnetx-400mf", 784, optimizer="sgd"), _trained("mixer-s32"), _trained("gmlp-ti", None, _TWO, "momentum"),
    _trained("pvt-v2-b1", optimizer="sgd"), _trained("poolformer-s12", 196), _trained("mobilevit-xs"),
    _trained("cvt-13", optimizer="sgd"), _trained("mvitv2-t", 196, optimizer="sgd"),
    _trained("mamba-130m", 49, _FEW_WORDS), _trained("rwkv4-169m", 49, _FEW_WORDS),
    _trained("retnet-base", 196, _FEW_WORDS, "sgd"),
    *(
        _trained(f"common-{name}", 784, _FEW_WORDS)
        for name in ("longformer", "linformer", "nystrom", "performer", "linear", "conv", "fnet", "bigbird")
    ),
    _trained("common-lstm", 49, _FEW_WORDS, "sgd"),
)  # fmt: skip


def placed(networks: Sequence[Trial], dtype: str) -> Iterator[tuple[str, Architecture, Trial]]:
    """Every network at every N, with its name."""
    for one in networks:
        loaded = load(one.preset, one.settings)
        for tokens, attention in product(one.tokens, one.attention):
            words = [one.preset, *([] if tokens is None else [f"N={tokens}"]), *one.settings, attention, one.mode]
            plan = RunPlan(optimizer=one.optimizer) if one.mode == "train" else None
            sizes = None if tokens is None else (tokens,)
            run = Run(tokens=sizes, dtype=dtype, attention=attention, mode=one.mode, plan=plan)
            yield " ".join(words if plan is None else [*words, one.optimizer]), place(loaded, run), one


_SEED: Final = 14
# No call has more MACs than this, nor a tensor more elements.
_MOST_MACS: Final = 2e9
_MOST_ELEMENTS: Final = 2**25
_MOST_WEIGHTS: Final = 2**26
_STORE: Final = 2**27
# Each operation runs so many times in a row: the first time, a library may compile its kernel.
_TIMES: Final = 3
_ELEMENTS: Final = tuple(2**power for power in range(8, 25, 2))
_GROUP_WIDTHS: Final = (4, 8, 12, 16, 20, 24, 32, 48, 64, 112, 128, 232, 264)
# Of three convolutions one also runs on images in the memory format channels-last, and on tokens; one also backward.
_CHANNELS_LAST: Final = 1 / 3
_BACKWARD: Final = 1 / 3

Operation = Callable[[], object]
T = TypeVar("T")


class SingleOperations(nn.Module):
    """All of them in one forward."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        super().__init__()
        draws = _Draws(dtype, device)
        self.operations = [operation for make in _KINDS for operation in make(draws)]

    def forward(self) -> None:
        for operation in self.operations:
            for _ in range(_TIMES):
                operation()


class _Draws:
    """Draws sizes, always the same ones, and hands out tensors.

    Activations are parts of the store's beginning, which the calls before have left in the caches; weights are parts
    of the rest, in turn, and are found in memory, as they are in a model.
    """

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self.random = random.Random(_SEED)  # noqa: S311 - sizes
        self._store = torch.randn(_STORE, dtype=dtype, device=device)
        self._next = _MOST_ELEMENTS * 2

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
        return self.random.choice(among)

    def activation(self, *sizes: int, after: int = 0) -> Tensor:
        """The same memory each time, from the element `after` on."""
        return self._store[after : after + prod(sizes)].view(sizes)

    def images(self, width: int, side: int) -> Iterator[Tensor]:
        """The same image channels-last, and tokens (Y·X, C) looked at as one, which kernels of images copy."""
        yield self.activation(1, width, side, side).contiguous(memory_format=torch.channels_last)
        yield self.activation(side * side, width).t().view(1, width, side, side)

    def weight(self, *sizes: int) -> Tensor:
        """Memory that no call has used for long."""
        if self._next + prod(sizes) > _STORE:
            self._next = _MOST_ELEMENTS * 2
        start, self._next = self._next, self._next + prod(sizes)
        return self._store[start : self._next].view(sizes)


def _with_weight(
    draws: _Draws, function: Callable[..., object], x: Tensor, sizes: Sequence[int], *others: Any, **more: int
) -> object:
    return function(x, draws.weight(*sizes), *others, **more)


def _products(draws: _Draws) -> Iterator[Operation]:
    """x·Wᵀ + b, and without b."""
    for _ in range(320):
        rows, inner, columns = draws.size(1, 16384), draws.size(16, 16384, 8), draws.size(16, 32768, 8)
        if rows * inner * columns > _MOST_MACS or max(inner, rows) * columns > _MOST_ELEMENTS:
            continue
        x, bias, shape = draws.activation(rows, inner), draws.weight(columns), (columns, inner)
        yield partial(_with_weight, draws, F.linear, x, shape, bias)
        if rows * inner * columns < _MOST_MACS / 10:
            yield partial(_with_weight, draws, F.linear, x, shape)


def _batched_products(draws: _Draws) -> Iterator[Operation]:
    """Batches of products of activations: scores and weighted values of heads and windows."""
    for number in range(700):
        few, many = ((64, 200_000), (1, 64), (4, 64), (1, 64)), ((1, 4096), (1, 4096), (8, 256, 4), (1, 4096))
        sizes = batch, rows, inner, columns = [draws.size(*bounds) for bounds in (few if number % 3 else many)]
        if number % 4 > 1:
            inner, columns = columns, inner
        tensors = batch * rows * inner, batch * inner * columns, batch * rows * columns
        if prod(sizes) > _MOST_MACS or max(tensors) > _MOST_ELEMENTS / 2:
            continue
        left = draws.activation(batch, rows, inner)
        right, turned = (
            draws.activation(batch, *each, after=tensors[0]) for each in ((inner, columns), (columns, inner))
        )
        yield partial(torch.bmm, left, right)
        yield partial(torch.bmm, left, turned.transpose(1, 2))
        if number % 5 == 0:
            yield partial(torch.bmm, draws.activation(batch, inner, rows).transpose(1, 2), right)


def _convolutions(draws: _Draws) -> Iterator[Operation]:
    """Full, pointwise, grouped, depthwise convolutions and patches, of images in several memory formats; and 3-D."""
    kinds = {"full": 200, "pointwise": 480, "grouped": 300, "depthwise": 200, "patches": 24}
    for kind in (kind for kind, number in kinds.items() for _ in range(number)):
        inner, outer, side, kernel, stride, groups = _drawn(draws, kind)
        sizes, padding = (outer, inner // groups, kernel, kernel), 0 if kind == "patches" else kernel // 2
        small = prod(sizes) <= _MOST_WEIGHTS and max(inner, outer) * side**2 <= _MOST_ELEMENTS
        if not small or prod(sizes) * (side / stride) ** 2 > _MOST_MACS:
            continue
        x, bias = draws.activation(1, inner, side, side), draws.choice((None, draws.weight(outer)))
        images = [x, *draws.images(inner, side)] if draws.random.random() < _CHANNELS_LAST else [x]
        for image in images:
            yield partial(_with_weight, draws, F.conv2d, image, sizes, bias, stride, padding, groups=groups)
        if draws.random.random() < _BACKWARD:
            results = (side + 2 * padding - kernel) // stride + 1
            gradient = draws.activation(1, outer, results, results, after=_MOST_ELEMENTS)
            needed = [*draws.choice(((True, True), (True, True), (False, True))), False]
            backward = partial(_differentiated, gradient, needed)
            others = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups
            yield partial(_with_weight, draws, backward, x, sizes, *others)
    for _ in range(30):
        width, side, frames = draws.width(16, 1024), draws.size(2, 56), draws.size(1, 8)
        groups = draws.choice((1, width, width))
        sizes_3d = width, width // groups, 3, 3, 3
        if frames * side * side * prod(sizes_3d) <= _MOST_MACS and width * frames * side * side < _MOST_ELEMENTS:
            x, strides = draws.activation(1, width, frames, side, side), draws.choice(((1, 1, 1), (1, 2, 2)))
            yield partial(_with_weight, draws, F.conv3d, x, sizes_3d, None, strides, 1, groups=groups)


def _drawn(draws: _Draws, kind: str) -> tuple[int, int, int, int, int, int]:
    """A convolution of a square image: channels in and out, the image's side, the kernel's, its stride, groups."""
    if kind == "pointwise":
        side = draws.choice((draws.size(1, 4), draws.size(1, 128)))
        return draws.width(16, 8192), draws.width(16, 8192), side, 1, draws.choice((1, 1, 1, 2)), 1
    if kind == "patches":
        kernel = draws.choice((2, 4, 8, 14, 16, 32))
        return 3, draws.width(8, 1024), kernel * draws.size(2, 64), kernel, kernel, 1
    if kind == "grouped":
        groups = draws.size(2, 64)
        width = draws.choice(_GROUP_WIDTHS) * groups
        return width, width, draws.size(1, 128), 3, draws.choice((1, 1, 1, 2)), groups
    if kind == "full":
        width = draws.width(8, 1024)
        inner, outer, groups = draws.choice((width, width, width, 3)), draws.width(8, 1024), 1
    else:
        inner = outer = groups = draws.width(8, 4096)
    side, kernel = draws.size(1, 128), draws.choice((3, 3, 3, 5, 7))
    return inner, outer, side, kernel, draws.choice((1, 1, 1, 2)), groups


def _differentiated(gradient: Tensor, needed: Sequence[bool], x: Tensor, weight: Tensor, *others: Any) -> object:
    return torch.ops.aten.convolution_backward(gradient, x, weight, None, *others, needed)


def _attention(draws: _Draws) -> Iterator[Operation]:
    """Fused attention, plain and causal."""
    for number in range(80):
        heads, width = draws.size(1, 64), draws.choice((32, 64, 64, 80, 128))
        queries = draws.size(16, 4096)
        keys = queries if number % 4 else draws.size(16, 4096)
        if 2 * heads * queries * keys * width > _MOST_MACS:
            continue
        q = draws.activation(1, heads, queries, width)
        k, v = (draws.activation(1, heads, keys, width, after=place * heads * keys * width) for place in (1, 2))
        causal = number % 3 == 0 and queries == keys
        yield partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)


def _lines(draws: _Draws) -> Iterator[Operation]:
    """Softmax, norms, sums along lines."""
    for _ in range(60):
        line, rows = draws.size(4, 8192), draws.size(1, 2**18)
        if line * rows > _MOST_ELEMENTS:
            continue
        x = draws.activation(rows, line)
        yield from (partial(function, x, -1) for function in (torch.softmax, torch.sum, torch.mean))
        yield partial(F.layer_norm, x, x.shape[-1:])


def _elementwise(draws: _Draws) -> Iterator[Operation]:
    functions = (torch.relu, F.gelu, F.silu, torch.exp, torch.sigmoid, torch.tanh, torch.neg)
    for elements in _ELEMENTS:
        x = draws.activation(elements)
        yield from (partial(function, x) for function in functions)
        yield partial(torch.mul, x, 2.0)
        yield partial(torch.cat, [x, x])
    for _ in range(110):
        # rows and columns are any number, or one that channels have
        sides = (draws.choice((draws.size(1, 4096), draws.width(8, 4096))) for _ in range(2))
        batch, rows, columns = sizes = draws.size(1, 512), *sides
        if prod(sizes) > _MOST_ELEMENTS:
            continue
        x, after = draws.activation(*sizes), _MOST_ELEMENTS
        others = (  # another tensor, a bias, a tensor transposed, position biases, a factor of every row
            draws.weight(*sizes) if prod(sizes) < _STORE // 8 else draws.activation(*sizes, after=after),
            draws.weight(columns),
            draws.activation(batch, columns, rows, after=after).transpose(1, 2),
            draws.activation(columns, rows).t(),
            draws.activation(rows, columns),
            draws.activation(batch, rows, 1),
        )
        yield from (partial(torch.add, x, other) for other in others)
        yield from (partial(torch.mul, x, other) for other in others[:2])
        views = x.transpose(1, 2), x.transpose(0, 1), x[..., : x.shape[-1] // 2 + 1]
        yield from (view.contiguous for view in views)


def _pools(draws: _Draws) -> Iterator[Operation]:
    pools: tuple[Callable[..., Tensor], ...] = (F.max_pool2d, F.avg_pool2d)
    for _ in range(50):
        width, side = draws.width(8, 1024), draws.size(2, 160)
        kernel = draws.choice((2, 3, 3, 4))
        if width * side**2 > _MOST_ELEMENTS or side < kernel:
            continue
        x, stride = draws.activation(1, width, side, side), draws.choice((1, 2, kernel))
        for image, pool in product((x, *draws.images(width, side)), pools):
            yield partial(pool, image, kernel, stride, kernel // 2)


def _lookups(draws: _Draws) -> Iterator[Operation]:
    """Rows within a batch, and elements by one and two indices, neighbours in a row as in windows."""
    for _ in range(140):
        batch, rows, run = draws.size(1, 512), draws.size(4, 4096), draws.size(1, 256)
        chosen = draws.size(4, 40_000)
        if max(batch * rows * run, batch * chosen * run) > _MOST_ELEMENTS:
            continue
        x, square = draws.activation(batch, rows, run), draws.activation(batch, run, rows)
        window = draws.choice((3, 5, 7))
        places = torch.arange(chosen, device=x.device)
        one = (places // window + places % window) % rows
        yield partial(x.__getitem__, (slice(None), one))
        yield partial(x.__getitem__, (one % batch, one))
        yield partial(square.__getitem__, (..., one))
        side = max(int(rows**0.5), 1)
        image = draws.activation(batch, run, side, side)
        yield partial(image.__getitem__, (slice(None), slice(None), one // side % side, one % side))


_KINDS: Final = (
    _products, _batched_products, _convolutions, _attention, _lines, _elementwise, _pools, _lookups,
)  # fmt: skip
