"""What one traced operation costs, read from the traced graph's own shapes: fvcore handles.

Each returns {"macs", "flops"} by the written convention (`conventions.py`). They mend fvcore's own: fused attention is
counted, broadcast matmuls are not undercounted, einsum stays an integer, element-wise work is seen. An operation that
stands in neither table below is *unsupported*, and the report says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any, Final

from xfcost.conventions import FLOPS_PER_ELEMENT

Counts = Counter[str]
# A value of the traced graph: torch._C.Value, which has no public type.
Value = Any
Handle = Callable[[list[Value], list[Value]], Counts]


def shape(value: Value) -> list[int]:
    """The sizes of a traced tensor, [] for anything else.

    Raises:
        ValueError: the trace didn't record them.
    """
    kind = value.type()
    if kind.kind() != "TensorType":
        return []
    sizes: list[int] | None = kind.sizes()
    if sizes is None:
        raise ValueError(f"the traced graph holds no shape for {value.debugName()}")
    return sizes


def _counts(macs: int, elementwise: int = 0) -> Counts:
    return Counter(macs=macs, flops=2 * macs + elementwise)


def _given(value: Value) -> bool:
    return bool(value.type().kind() != "NoneType")


def _is_float(value: Value) -> bool:
    """Is it a tensor of floats? Shape arithmetic is traced too, as whole numbers, and costs nothing."""
    kind = value.type()
    return bool(kind.kind() == "TensorType" and kind.scalarType() in ("Float", "Double", "Half", "BFloat16"))


def is_shape_arithmetic(node: Any) -> bool:
    """Does a traced operation work on single whole numbers alone? While a trace runs, sizes are such tensors."""
    tensors = [value for value in (*node.inputs(), *node.outputs()) if value.type().kind() == "TensorType"]
    return bool(tensors) and all(
        value.type().sizes() == [] and value.type().scalarType() == "Long" for value in tensors
    )


def linear(inputs: list[Value], outputs: list[Value]) -> Counts:
    """x (…, in) · weight (out, in)ᵀ + bias."""
    elements = prod(shape(outputs[0]))
    bias = elements * FLOPS_PER_ELEMENT["add"] if len(inputs) > 2 and _given(inputs[2]) else 0  # noqa: PLR2004
    return _counts(elements * shape(inputs[0])[-1], bias)


def matmul(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(…, n, k) · (…, k, m): every element of the output is a dot product of length k, whatever was broadcast."""
    return _counts(prod(shape(outputs[0])) * shape(inputs[0])[-1])


def addmm(inputs: list[Value], outputs: list[Value]) -> Counts:
    """added + (n, k) · (k, m); baddbmm too."""
    elements = prod(shape(outputs[0]))
    return _counts(elements * shape(inputs[1])[-1], elements * FLOPS_PER_ELEMENT["add"])


def einsum(inputs: list[Value], outputs: list[Value]) -> Counts:
    """One multiply-accumulate per combination of all letters of the equation, for two operands.

    Any other einsum is told as not counted, under its equation.
    """
    equation = inputs[0].toIValue().replace(" ", "")
    terms = equation.split("->")[0].split(",")
    operands = [shape(value) for value in inputs[1].node().inputs()]
    if len(operands) != 2 or "." in equation:  # noqa: PLR2004
        return Counter({f"aten::einsum of {equation!r}": 1})
    sizes: dict[str, int] = {}
    for term, sides in zip(terms, operands, strict=True):
        for letter, size in zip(term, sides, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))  # a side of 1 is broadcast
    return _counts(prod(sizes.values()))


def convolution(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Weights (out, in/groups, *kernel): per output element in/groups·kernel MACs; transposed, per input element."""
    weight = shape(inputs[1])
    transposed = len(inputs) > 6 and inputs[6].toIValue() is True  # noqa: PLR2004
    positions = prod(shape(inputs[0])) if transposed else prod(shape(outputs[0]))
    bias = prod(shape(outputs[0])) * FLOPS_PER_ELEMENT["add"] if _given(inputs[2]) else 0
    return _counts(positions * prod(weight[1:]), bias)


def fused_attention(inputs: list[Value], outputs: list[Value]) -> Counts:
    """softmax(QKᵀ/√k + bias)V, q (…, n, k), k (…, m, k), v (…, m, v): the dense product, whatever is masked."""
    width, m = shape(inputs[1])[-1], shape(inputs[1])[-2]
    *lead, n, value_width = shape(outputs[0])
    entries = prod(lead) * n * m
    biased = _given(inputs[3]) and _is_float(inputs[3])
    elementwise = entries * FLOPS_PER_ELEMENT["softmax"] + prod(lead) * n * width * FLOPS_PER_ELEMENT["multiply"]
    return _counts(entries * (width + value_width), elementwise + (entries * FLOPS_PER_ELEMENT["add"] if biased else 0))


def elementwise(work: str) -> Handle:
    """`work` per element of the output."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return _counts(0, prod(shape(outputs[0])) * FLOPS_PER_ELEMENT[work] if _is_float(outputs[0]) else 0)

    return handle


def mean(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Per element that enters."""
    return _counts(0, prod(shape(inputs[0])) * FLOPS_PER_ELEMENT["mean"])


def gelu(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Exact, or by the tanh formula."""
    form = "gelu_tanh" if len(inputs) > 1 and inputs[1].toIValue() == "tanh" else "gelu"
    return elementwise(form)(inputs, outputs)


COUNTED: Final[dict[str, Handle]] = {
    "aten::linear": linear,
    "aten::matmul": matmul,
    "aten::mm": matmul,
    "aten::bmm": matmul,
    "aten::addmm": addmm,
    "aten::baddbmm": addmm,
    "aten::einsum": einsum,
    "aten::_convolution": convolution,
    "aten::scaled_dot_product_attention": fused_attention,
    "aten::layer_norm": elementwise("layer_norm"),
    "aten::softmax": elementwise("softmax"),
    "aten::gelu": gelu,
    "aten::relu": elementwise("relu"),
    "aten::relu_": elementwise("relu"),
    "aten::add": elementwise("add"),
    "aten::add_": elementwise("add"),
    "aten::sub": elementwise("add"),
    "aten::mul": elementwise("multiply"),
    "aten::mul_": elementwise("multiply"),
    "aten::div": elementwise("multiply"),
    "aten::mean": mean,
}

# Moving, shaping and choosing data, and making constants: 0 FLOPs by convention. fvcore's own list is not used, for it
# hides arithmetic (max, clamp) among them.
FREE: Final[frozenset[str]] = frozenset(
    "aten::" + name
    for name in re.split(
        r"\s+",
        """Int ScalarImplicit alias arange broadcast_tensors cat chunk clone constant_pad_nd contiguous copy_ detach
        dropout embedding empty expand expand_as eye fill_ flatten full full_like gather ge gt index
        index_select le lift_fresh logical_and logical_not logical_or lt mT masked_fill masked_fill_ movedim narrow
        ne new_full new_ones new_zeros numpy_T ones ones_like pad permute rand randn reshape roll select size slice
        split split_with_sizes squeeze stack swapaxes t tensor to transpose tril triu type_as unbind unflatten
        unfold unsqueeze view where zeros zeros_like""",
    )
)
