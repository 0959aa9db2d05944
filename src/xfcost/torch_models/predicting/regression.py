"""Seconds of an ATen call from measured calls of its kind: local linear regression between logarithms.

What decides how long a call takes are its kind, numbers that describe its size, its MACs and its bytes. Every kind of
call has points (numbers of a call, logarithm of its seconds over a baseline). The baseline is call overhead +
MACs / rate + bytes / rate; what the points add is how far a kernel is from it at such sizes. Near points count most
(Cleveland 1979, locally weighted regression), so that between them the prediction follows them, and far from them it
keeps the ratio of the nearest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import ceil, exp, gcd, log, log2, prod
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from xfcost.ledger.calibration import Baseline, DeviceCache, Samples
from xfcost.ledger.errors import UsageError, printable
from xfcost.torch_models.running.prediction_calls import FLASH_ATTENTION, FUSED_ATTENTION, INDICES, Layout, LayoutCall

_BYTES: Final = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_PRODUCTS: Final = frozenset(("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"))
_BATCHED: Final = frozenset(("aten.bmm", "aten.baddbmm"))
# torch multiplies matrices of fewer MACs by loops of its own (aten/src/ATen/native/LinearAlgebra.cpp).
_OWN_LOOPS: Final = 400
# Steps and rows of products that find their weights in the caches.
_STEPS: Final = 32
_FEW_ROWS: Final = 4
# Operations over lines of numbers, each along the last axis.
_ALONG_LINES: Final = frozenset((
    "aten._softmax", "aten._log_softmax", "aten.native_layer_norm", "aten.native_group_norm", "aten.mean", "aten.sum",
    "aten.var_mean", "aten.amax", "aten.logsumexp", "aten._softmax_backward_data", "aten._log_softmax_backward_data",
    "aten.native_layer_norm_backward", "aten.linalg_vector_norm",
))  # fmt: skip
_POOLS: Final = frozenset(("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices", "aten.avg_pool2d"))
# Operands that a kind of call tells apart; the others are in its bytes.
_OPERANDS: Final = 3
# Bytes of a way of the first cache, and the number that stands for rows a multiple of them apart.
_WAY: Final = 4096
_MOST_ALIGNED: Final = 5.0
# oneDNN's layouts round channels up to these, but for an image's channels, which it reads as they are.
_CHANNEL_BLOCK: Final = 16
_IMAGE_CHANNELS: Final = 3
FUSED_RMS_NORM: Final = "aten._fused_rms_norm"
# More of them, whose kernels on a GPU go along lines.
_ALONG_LINES_OF_GPU: Final = frozenset((
    FUSED_RMS_NORM, "aten.native_group_norm_backward", "aten.max", "aten.min", "aten.sort",
))  # fmt: skip
# Tensor cores load so many numbers of these types at once.
_TENSOR_CORES: Final = ("bfloat16", "float16")
_TENSOR_CORE_LINE: Final = 8
# Sides of the tile of a product that a multiprocessor computes.
_TILE: Final = 64
# Images of fewer pixels don't fill a vector of AVX-512: other kernels.
_LANES: Final = 16


Place = TypeVar("Place", bound=Hashable)


class CallFeatures(NamedTuple):
    """A call as a point: calls of one kind are compared by their numbers."""

    operation: str
    variant: str
    """What runs another kernel of the same operation: transposed operands, groups, memory formats."""
    numbers: tuple[float, ...]
    """Logarithms (base 2) of sizes."""
    macs: int
    moved_bytes: int
    """Bytes of inputs and outputs, each element in memory once."""


def features(call: LayoutCall, *, looped: bool = False) -> CallFeatures:
    """The features of a call; `looped`: it runs again and again on the same weights, which stay in the caches."""
    moved = sum(map(_bytes, (*call.inputs, *call.outputs)))
    found = _KINDS.get(call.operation, _elementwise)(call, moved)
    return found._replace(variant=f"{found.variant} looped") if looped else found


def features_of(
    calls: Mapping[tuple[Any, LayoutCall], int], *, by_kernels: bool = False
) -> dict[LayoutCall, CallFeatures]:
    """The features of every call of a run; `calls` says how often each place makes it."""
    if by_kernels:
        return {call: kernel_features(call) for call in {call for _, call in calls}}
    looped = loops(calls)
    return {call: features(call, looped=call in looped) for call in {call for _, call in calls}}


def kernel_features(call: LayoutCall) -> CallFeatures:
    """The features of a call whose kernels run on a GPU."""
    moved, operation = sum(map(_bytes, (*call.inputs, *call.outputs))), call.operation
    if operation in _PRODUCTS:
        found = _product(call, moved)
        inner, columns = call.inputs[-2].sizes[-1], call.inputs[-1].sizes[-1]
        halves = call.inputs[-1].dtype in _TENSOR_CORES
        aligned = log2(gcd(inner, columns, _TENSOR_CORE_LINE)) if halves else 0.0
        return found._replace(variant=found.variant.removesuffix(" small"), numbers=(*found.numbers, aligned))
    if operation in ("aten.convolution", "aten.convolution_backward"):
        return _convolution(call, moved, on_gpu=True)
    if operation in _ALONG_LINES or operation in _ALONG_LINES_OF_GPU:
        first, results = call.inputs[0], prod(call.outputs[0].sizes)
        line = prod(first.sizes) // prod(call.outputs[1].sizes) if operation.endswith("group_norm") else _line(call)
        numbers = _logs(prod(first.sizes), line, results)
        return CallFeatures("lines", f"{operation} {_memory_format(first)}", numbers, 0, moved)
    if operation in _KINDS:
        return _KINDS[operation](call, moved)
    if operation.startswith("aten._foreach"):
        return CallFeatures("lists", operation, _logs(moved), 0, moved)
    read = [*map(_bytes, call.inputs), 0, 0]
    numbers = _logs(read[0], read[1], sum(read[2:]), sum(map(_bytes, call.outputs)), _line(call))
    formats = "/".join(map(_memory_format, call.inputs[:2])) + ">" + _memory_format((*call.outputs, *call.inputs)[0])
    return CallFeatures("elementwise", f"{operation} {formats}", numbers, 0, moved)


_RMS_NORM: Final = frozenset(("aten.pow", "aten.mean", "aten.add_", "aten.rsqrt", "aten.mul", "aten._to_copy"))
# They run no kernel.
_WITHOUT_KERNEL: Final = frozenset((
    "aten._local_scalar_dense", "aten.empty", "aten.empty_like", "aten.new_empty_strided", "aten.scalar_tensor",
))  # fmt: skip


def as_kernels(
    calls: Collection[tuple[tuple[Place, LayoutCall], int]],
) -> Iterator[tuple[tuple[Place, LayoutCall], int]]:
    """The calls of a run as a GPU makes them: `meta` splits an RMSNorm into five operations, CUDA fuses them.

    Each has its place, and how often it ran.
    """
    operations: dict[Place, set[str]] = defaultdict(set)
    for (place, call), _ in calls:
        operations[place].add(call.operation)
    for (place, call), times in calls:
        here = operations[place]
        if {"aten.pow", "aten.rsqrt", "aten.add_"} <= here and call.operation in _RMS_NORM:
            if call.operation == "aten.pow":
                yield (place, LayoutCall(FUSED_RMS_NORM, call.inputs[:1], call.outputs)), times
        elif call.operation not in _WITHOUT_KERNEL and not _of_numbers(call):
            yield (place, call), times


def _of_numbers(call: LayoutCall) -> bool:
    """Is it a call on lists of single numbers, which the optimizer keeps on the host?"""
    return call.operation.startswith("aten._foreach") and not any(one.sizes for one in call.inputs)


def loops(calls: Mapping[tuple[Any, LayoutCall], int]) -> Collection[LayoutCall]:
    """The products of few rows that one place makes again and again: steps of a recurrence."""
    return {
        call
        for (_, call), times in calls.items()
        if times >= _STEPS and call.operation in _PRODUCTS and call.inputs[-2].sizes[-2] <= _FEW_ROWS
    }


def _elementwise(call: LayoutCall, moved: int) -> CallFeatures:
    """Operands one by one: a transposed one costs more than a small one that is broadcast."""
    aligned = max(map(_alignment, (*call.inputs[:_OPERANDS], *call.outputs[:1])), default=0)
    read = [_bytes(one) for one in call.inputs[: _OPERANDS - 1]]
    read += [sum(map(_bytes, call.inputs)) - sum(read), *[0] * _OPERANDS]
    numbers = _logs(*read[:_OPERANDS], sum(map(_bytes, call.outputs)), _line(call))
    return CallFeatures(call.operation, _formats(call), (*numbers, aligned), 0, moved)


def _along_lines(call: LayoutCall, moved: int) -> CallFeatures:
    return CallFeatures(call.operation, _formats(call), _logs(prod(call.inputs[0].sizes), _line(call)), 0, moved)


def _formats(call: LayoutCall) -> str:
    formats = map(_memory_format, call.inputs[:_OPERANDS])
    return "/".join(formats) + ">" + _memory_format((*call.outputs, *call.inputs)[0])


def _line(call: LayoutCall) -> int:
    """Elements along the last axis."""
    first = (*call.inputs, *call.outputs)[0]
    return first.sizes[-1] if first.sizes else 1


def _pool(call: LayoutCall, moved: int) -> CallFeatures:
    image, pooled = call.inputs[0], call.outputs[0]
    numbers = _logs(prod(image.sizes[:2]), prod(pooled.sizes[2:]), prod(call.options[0]))
    found = _image_format(image)
    return CallFeatures(call.operation, found, (*numbers, _alignment(image) if found == "t" else 0.0), 0, moved)


def _lookup(call: LayoutCall, moved: int) -> CallFeatures:
    """Elements chosen by indices: runs of neighbours are copied together."""
    source, result = call.inputs[0], call.outputs[0]
    (indexed,) = call.options
    chosen = [axis for axis, given in enumerate(indexed) if given == INDICES]
    run = prod(source.sizes[chosen[-1] + 1 :])
    numbers = _logs(_bytes(source), prod(result.sizes), run)
    return CallFeatures(call.operation, f"{len(chosen)} of {_memory_format(source)}", numbers, 0, moved)


def _product(call: LayoutCall, moved: int) -> CallFeatures:
    """B products of (M, K) by (K, N)."""
    left, right = call.inputs[-2:]
    batch = left.sizes[0] if len(left.sizes) > 2 else 1  # noqa: PLR2004 - rank of a matrix
    rows, inner, columns = *left.sizes[-2:], right.sizes[-1]
    turned = "".join("t" if one.strides[-1] != 1 and one.sizes[-1] > 1 else "n" for one in (left, right))
    if call.operation in _BATCHED and rows * inner * columns < _OWN_LOOPS:
        turned += " small"
    numbers = _logs(batch, rows, inner, columns)
    return CallFeatures("product", turned, numbers, batch * rows * inner * columns, moved)


def _convolution(call: LayoutCall, moved: int, *, on_gpu: bool = False) -> CallFeatures:
    """Backward, one product for the gradient of the image, one for that of the kernels, as they are needed.

    On a GPU the layouts are those of `meta`, where results are contiguous; cuDNN's may be channels-last. So sizes only
    are compared there.
    """
    name, products, more = "convolution", 1, ""
    (image, weight), output = call.inputs[:2], call.outputs[:1]
    stride, _padding, _dilation, _transposed, groups, *mask = call.options
    if call.operation == "aten.convolution_backward":
        (of_image, of_weight, _of_bias), *_ = mask
        needed = ("i" if of_image else "") + ("w" if of_weight else "")
        name, products, more = "convolution backward", len(needed), f" {needed}"
        output, (image, weight) = call.inputs[:1], call.inputs[1:3]
    (result,) = output
    kernel = prod(weight.sizes[2:])
    kind = "depthwise" if weight.sizes[1] == 1 < groups else "grouped" if groups > 1 else "1×1" if kernel == 1 else ""
    places, batch = prod(result.sizes[2:]), result.sizes[0]
    macs, places_and_stride = prod(result.sizes) * prod(weight.sizes[1:]) * products, (places * batch, prod(stride))
    if on_gpu:
        sizes = groups, weight.sizes[1], weight.sizes[0] // groups, kernel**2 if kind == "depthwise" else kernel
        return CallFeatures(name, f"{kind} {len(stride)}-D{more}", _logs(*sizes, *places_and_stride), macs, moved)
    seen = _image_format(image)
    numbers = _logs(*weight.sizes[:2], groups, kernel, *places_and_stride)
    numbers = *numbers, _alignment(image) if seen == "t" else 0.0
    variant = f"{kind} {seen}>{_memory_format(result)} {len(stride)}-D{more}"
    variant += " ragged" if kind != "1×1" and _ragged(weight, groups) else ""
    variant += " few" if places < _LANES else ""
    return CallFeatures(name, variant, numbers, macs, moved)


def _attention(call: LayoutCall, moved: int) -> CallFeatures:
    """Two products; backward five: the scores again, and the gradients of values, weights, queries and keys."""
    if call.operation.endswith("_backward"):
        name, (_gradient, queries, keys, values), unmasked = "attention backward", call.inputs[:4], 6
        macs_per_pair = 3 * queries.sizes[-1] + 2 * values.sizes[-1]
    else:
        name, (queries, keys, values), unmasked = FUSED_ATTENTION, call.inputs[:3], 3
        macs_per_pair = queries.sizes[-1] + values.sizes[-1]
    variant = "masked" if len(call.inputs) > unmasked else "causal" if call.options[0] else ""
    heads, width = prod(queries.sizes[:-2]), queries.sizes[-1]
    numbers = _logs(heads, queries.sizes[-2], keys.sizes[-2], width)
    pairs = heads * queries.sizes[-2] * keys.sizes[-2]
    return CallFeatures(name, variant, numbers, pairs * macs_per_pair, moved)


_KINDS: Final[Mapping[str, Callable[[LayoutCall, int], CallFeatures]]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(_ALONG_LINES, _along_lines),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(("aten.convolution", "aten.convolution_backward"), _convolution),
    **dict.fromkeys((FUSED_ATTENTION, FLASH_ATTENTION, f"{FLASH_ATTENTION}_backward"), _attention),
    "aten.index": _lookup,
}


def _bytes(layout: Layout) -> int:
    return _stored(layout) * _BYTES.get(layout.dtype, 4)


def _logs(*numbers: int) -> tuple[float, ...]:
    return tuple(log2(max(number, 1)) for number in numbers)


def _stored(layout: Layout) -> int:
    """Elements in memory: a broadcast axis has one."""
    return prod(size for size, stride in zip(layout.sizes, layout.strides, strict=True) if stride)


def _memory_format(layout: Layout) -> str:
    """`c` contiguous, `i` contiguous along its last axis only, `t` not even that; `b` before it where broadcast."""
    axes = [(size, stride) for size, stride in zip(layout.sizes, layout.strides, strict=True) if size > 1]
    broadcast = "b" if any(stride == 0 for _, stride in axes) else ""
    kept = [axis for axis in axes if axis[1]]
    if all(stride == prod(size for size, _ in kept[place + 1 :]) for place, (_, stride) in enumerate(kept)):
        return f"{broadcast}c"
    return broadcast + ("i" if kept[-1][1] == 1 else "t")


def _image_format(layout: Layout) -> str:
    """As `_memory_format`, and `l` where kernels of images take it as channels-last."""
    found = _memory_format(layout)
    return "l" if found != "c" and seen_as_channels_last(layout.sizes, layout.strides) else found


def _ragged(weight: Layout, groups: int) -> bool:
    """Do the channels of a convolution not fill oneDNN's blocks: vectors of 16, and of 8 within a group?

    Its first layer, of an image's colours, reads them as they are.
    """
    outer, inner = weight.sizes[:2]
    if 1 < groups != outer:
        return inner % (_CHANNEL_BLOCK // 2) != 0
    return outer % _CHANNEL_BLOCK != 0 or (groups == 1 and inner % _CHANNEL_BLOCK != 0 and inner > _IMAGE_CHANNELS)


def _alignment(layout: Layout) -> float:
    """Of a transposed operand, how few sets of the first cache hold a column of it.

    Rows that lie a multiple of 4 KiB apart share one set (5), of 2 KiB two sets (4), of 256 bytes 16 sets (1).
    """
    axes = [(size, stride) for size, stride in zip(layout.sizes, layout.strides, strict=True) if size > 1 and stride]
    if not axes or axes[-1][1] == 1:
        return 0.0
    apart = axes[-1][1] * _BYTES.get(layout.dtype, 4)
    return max(log2(gcd(apart, _WAY)) - log2(_WAY) + _MOST_ALIGNED, 0.0)


# ── from features to seconds ──

_BANDWIDTH: Final = 1.0  # of the weights: sizes a factor of 2 apart
_RIDGE: Final = 0.3
_REACH: Final = 2.0  # a line is followed so far from its points: a factor of 4

Known = Literal["kind", "operation", "none"]
"""What was measured: this kind of call, only other kinds of its operation, or no call of the operation."""


class Predicted(NamedTuple):
    """Seconds of one call."""

    seconds: float
    known: Known


class MeasuredCalls(NamedTuple):
    """The measured calls of one kind: (points, numbers), and the logarithm of each ratio to the baseline."""

    numbers: NDArray[np.float64]
    ratios: NDArray[np.float64]


def baseline_seconds(baseline: Baseline, found: CallFeatures) -> float:
    """Call overhead, arithmetic and memory, one after the other; on a GPU the longer of arithmetic and memory."""
    if baseline.cache is not None:
        return _kernel_baseline(baseline, baseline.cache, found)
    arithmetic = found.macs / baseline.macs_per_second
    return baseline.call_seconds + arithmetic + found.moved_bytes / baseline.bytes_per_second


def _kernel_baseline(baseline: Baseline, cache: DeviceCache, found: CallFeatures) -> float:
    """Bytes that the cache holds move at its rate; a product takes whole waves of tiles over the multiprocessors."""
    arithmetic = found.macs / baseline.macs_per_second
    if found.operation == "product":
        batch, rows, inner, columns = (round(2**number) for number in found.numbers[:4])
        waves = ceil(batch * ceil(rows / _TILE) * ceil(columns / _TILE) / baseline.multiprocessors)
        # a tile begins and ends in about the time of one more step along K
        arithmetic = waves * _TILE**2 * (inner + _TILE) * baseline.multiprocessors / baseline.macs_per_second
    beyond = max(found.moved_bytes - cache.held_bytes, 0)
    memory = found.moved_bytes / cache.bytes_per_second + beyond / baseline.bytes_per_second
    return baseline.call_seconds + max(arithmetic, memory)


@cache  # a network's calls are points of the calibrations without each of the others
def _point(baseline: Baseline, found: CallFeatures) -> tuple[tuple[float, ...], float]:
    return tuple(round(number, 3) for number in found.numbers), baseline_seconds(baseline, found)


def samples_of(baseline: Baseline, measured: Mapping[CallFeatures, float]) -> tuple[Samples, ...]:
    """The points of measured calls, kind by kind."""
    kinds: dict[tuple[str, str], list[tuple[tuple[float, ...], float]]] = defaultdict(list)
    for found, seconds in measured.items():
        numbers, expected = _point(baseline, found)
        kinds[found.operation, found.variant].append((numbers, round(log(seconds / expected), 4)))
    return tuple(
        Samples(
            operation=operation,
            variant=variant,
            numbers=tuple(numbers for numbers, _ in points),
            ratios=tuple(ratio for _, ratio in points),
        )
        for (operation, variant), points in kinds.items()
    )


def joined(first: Iterable[Samples], more: Iterable[Samples]) -> tuple[Samples, ...]:
    """Two sets of samples as one."""
    kinds: dict[tuple[str, str], Samples] = {}
    for one in (*first, *more):
        before, both = kinds.get((one.operation, one.variant)), one
        if before is not None:
            _check(one.operation, len(one.numbers[0]), len(before.numbers[0]))
            numbers, ratios = before.numbers + one.numbers, before.ratios + one.ratios
            both = msgspec.structs.replace(one, numbers=numbers, ratios=ratios)
        kinds[one.operation, one.variant] = both
    return tuple(kinds.values())


class Regression:
    """Predicts seconds of calls from the samples of a calibration.

    Raises:
        UsageError: calls of one operation have not equally many numbers.
    """

    def __init__(self, baseline: Baseline, samples: Iterable[Samples]) -> None:
        self.baseline = baseline
        self._kinds: dict[tuple[str, str], MeasuredCalls] = {}
        operations: dict[str, list[MeasuredCalls]] = defaultdict(list)
        for one in samples:
            points = MeasuredCalls(np.array(one.numbers, dtype=float), np.array(one.ratios, dtype=float))
            self._kinds[one.operation, one.variant] = points
            operations[one.operation].append(points)
        for name, each in operations.items():
            for other in each:
                _check(name, other.numbers.shape[1], each[0].numbers.shape[1])
        self._operations = {
            name: MeasuredCalls(*(np.concatenate(parts) for parts in zip(*each, strict=True)))
            for name, each in operations.items()
        }

    def __call__(self, found: CallFeatures) -> Predicted:
        kind, operation = self._kinds.get((found.operation, found.variant)), self._operations.get(found.operation)
        points, seconds = operation if kind is None else kind, baseline_seconds(self.baseline, found)
        if points is None:
            return Predicted(seconds, "none")
        _check(found.operation, points.numbers.shape[1], len(found.numbers))
        return Predicted(
            seconds * exp(_local(points, np.array(found.numbers))), "operation" if kind is None else "kind"
        )


def _check(operation: str, measured: int, expected: int) -> None:
    if measured != expected:
        raise UsageError(
            f"--predict: the calibration has {measured} numbers of each measured call of {printable(operation, 60)}, "
            f"expected {expected}: another version of xfcost wrote the file, or it was edited; measure the machine "
            "again with xfcost calibrate"
        )


def _local(points: MeasuredCalls, at: NDArray[np.float64]) -> float:
    """The value at a place of the line through the points around it."""
    squares = ((points.numbers - at) ** 2).sum(axis=1)
    width = max(_BANDWIDTH, 0.7 * float(np.sqrt(squares.min())))
    weights = np.exp(-(squares - squares.min()) / (2 * width * width))
    weights /= weights.sum()
    middle, mean = weights @ points.numbers, float(weights @ points.ratios)
    offsets = points.numbers - middle
    normal = (offsets * weights[:, None]).T @ offsets + _RIDGE * np.eye(len(at))
    slope = np.linalg.solve(normal, (offsets * weights[:, None]).T @ (points.ratios - mean))
    return mean + float(np.clip(at - middle, -_REACH, _REACH) @ slope)


# Axes of images: batch, channels, height and width; and those of videos.
_AXES: Final = (4, 5)


def seen_as_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Do kernels take a tensor that is not contiguous as channels-last? Others they copy.

    They look at the strides only, also at that of an axis of one image (c10, is_channels_last_strides_2d): tokens that
    are looked at as one image have another there.
    """
    if len(sizes) not in _AXES or strides[1] == 0:
        return False
    least = 0
    for axis in (1, *range(len(sizes) - 1, 1, -1), 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * max(sizes[axis], 1)
    return True
