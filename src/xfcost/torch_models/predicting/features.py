"""What decides how long an ATen call takes: its kind, numbers that describe its size, its MACs and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Final, NamedTuple

from xfcost.torch_models.predicting.call import Call, Layout
from xfcost.torch_models.predicting.calls import FLASH_ATTENTION, FUSED_ATTENTION

_BYTES: Final = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_PRODUCTS: Final = frozenset(("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"))
# Operations over lines of numbers, each along the last axis.
_ALONG_LINES: Final = frozenset((
    "aten._softmax", "aten._log_softmax", "aten.native_layer_norm", "aten.native_group_norm", "aten.mean", "aten.sum",
    "aten.var_mean", "aten.amax", "aten.logsumexp", "aten._softmax_backward_data", "aten._log_softmax_backward_data",
    "aten.native_layer_norm_backward", "aten.linalg_vector_norm",
))  # fmt: skip


class Features(NamedTuple):
    """A call as a point: calls of one kind are compared by their numbers."""

    operation: str
    variant: str
    """What runs another kernel of the same operation: transposed operands, groups, memory formats."""
    numbers: tuple[float, ...]
    """Logarithms (base 2) of sizes."""
    macs: int
    moved_bytes: int
    """Bytes of inputs and outputs, each element in memory once."""


def features(call: Call) -> Features:
    """The features of a call."""
    moved = sum(_stored(one) * _BYTES.get(one.dtype, 4) for one in (*call.inputs, *call.outputs))
    if call.operation in _OF:
        return _OF[call.operation](call, moved)
    variant = "/".join(map(_memory_format, call.inputs[:3])) + ">" + _memory_format((*call.outputs, *call.inputs)[0])
    first = (*call.inputs, *call.outputs)[0]
    line = first.sizes[-1] if first.sizes else 1
    if call.operation in _ALONG_LINES:
        return Features(call.operation, variant, _logs(prod(first.sizes), line), 0, moved)
    read, written = (
        sum(_stored(one) * _BYTES.get(one.dtype, 4) for one in each) for each in (call.inputs, call.outputs)
    )
    return Features(call.operation, variant, _logs(read, written, line), 0, moved)


def _product(call: Call, moved: int) -> Features:
    """B products of (M, K) by (K, N)."""
    left, right = call.inputs[-2:]
    batch = left.sizes[0] if len(left.sizes) > 2 else 1  # noqa: PLR2004 - rank of a matrix
    rows, inner, columns = *left.sizes[-2:], right.sizes[-1]
    turned = "".join("t" if one.strides[-1] != 1 and one.sizes[-1] > 1 else "n" for one in (left, right))
    numbers = _logs(batch, rows, inner, columns)
    return Features("product", turned, numbers, batch * rows * inner * columns, moved)


def _convolution(call: Call, moved: int) -> Features:
    image, weight = call.inputs[:2]
    return _convolved("convolution", "", (image, weight, call.outputs[0]), call, moved)


def _convolution_backward(call: Call, moved: int) -> Features:
    """One product for the gradient of the image, one for that of the kernels, as they are needed."""
    gradient, image, weight = call.inputs[:3]
    *_, (of_image, of_weight, _of_bias) = call.options
    needed = ("i" if of_image else "") + ("w" if of_weight else "")
    return _convolved("convolution backward", f" {needed}", (image, weight, gradient), call, moved, len(needed))


def _convolved(
    name: str, more: str, tensors: tuple[Layout, Layout, Layout], call: Call, moved: int, products: int = 1
) -> Features:
    image, weight, output = tensors
    stride, _padding, _dilation, _transposed, groups, *_ = call.options
    kernel = prod(weight.sizes[2:])
    kind = "depthwise" if weight.sizes[1] == 1 < groups else "grouped" if groups > 1 else "1×1" if kernel == 1 else ""
    places, batch = prod(output.sizes[2:]), output.sizes[0]
    numbers = _logs(*weight.sizes[:2], kernel, places * batch, prod(stride))
    macs = prod(output.sizes) * prod(weight.sizes[1:]) * products
    return Features(name, f"{kind} {_memory_format(image)} {len(stride)}-D{more}", numbers, macs, moved)


def _attention(call: Call, moved: int) -> Features:
    queries, _keys, values = call.inputs[:3]
    return _attended(FUSED_ATTENTION, call.inputs[:3], call, moved, queries.sizes[-1] + values.sizes[-1])


def _attention_backward(call: Call, moved: int) -> Features:
    """Five products: the scores again, and the gradients of values, weights, queries and keys."""
    _gradient, queries, _keys, values = call.inputs[:4]
    macs_per_pair = 3 * queries.sizes[-1] + 2 * values.sizes[-1]
    return _attended("attention backward", call.inputs[1:4], call, moved, macs_per_pair)


def _attended(name: str, operands: Sequence[Layout], call: Call, moved: int, macs_per_pair: int) -> Features:
    queries, keys, _ = operands
    masked = len(call.inputs) > (3 if name == FUSED_ATTENTION else 6)
    heads, width = prod(queries.sizes[:-2]), queries.sizes[-1]
    pairs = heads * queries.sizes[-2] * keys.sizes[-2]
    variant = "masked" if masked else "causal" if call.options[0] else ""
    numbers = _logs(heads, queries.sizes[-2], keys.sizes[-2], width)
    return Features(name, variant, numbers, pairs * macs_per_pair, moved)


_OF: Final[dict[str, Callable[[Call, int], Features]]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_backward,
    FUSED_ATTENTION: _attention,
    FLASH_ATTENTION: _attention,
    f"{FLASH_ATTENTION}_backward": _attention_backward,
}


def _logs(*numbers: int) -> tuple[float, ...]:
    return tuple(log2(max(number, 1)) for number in numbers)


def _stored(layout: Layout) -> int:
    """Elements in memory: a broadcast axis has one."""
    return prod(size for size, stride in zip(layout.sizes, layout.strides, strict=True) if stride)


def _memory_format(layout: Layout) -> str:
    """`c` contiguous, `i` contiguous along its last axis alone, `t` not even that; `b` before it where broadcast."""
    axes = [(size, stride) for size, stride in zip(layout.sizes, layout.strides, strict=True) if size > 1]
    broadcast = "b" if any(stride == 0 for _, stride in axes) else ""
    kept = [axis for axis in axes if axis[1]]
    if _contiguous(kept):
        return f"{broadcast}c"
    return broadcast + ("i" if kept[-1][1] == 1 else "t")


def _contiguous(axes: Sequence[tuple[int, int]]) -> bool:
    expected = 1
    for size, stride in reversed(axes):
        if stride != expected:
            return False
        expected *= size
    return True
