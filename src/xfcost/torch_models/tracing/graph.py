"""Helpers of all handles: values of a traced graph, and the cost of an operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT

# torch names; there are several types of 8 bits and fewer, such as Float8_e4m3fn.
_FLOATS: Final = ("Float", "Double", "Half", "BFloat16")
Counts = Counter[str]
# A value of the traced graph: torch._C.Value, which has no public type.
Value = Any
Handle = Callable[[list[Value], list[Value]], Counts]


class ShapeMissingError(ValueError):
    """The trace has no shape for a tensor: nested, sparse, or from scripted code."""


def shape(value: Value) -> list[int]:
    """The sizes of a traced tensor, [] for other values.

    Raises:
        ShapeMissingError: the trace didn't record them.
    """
    kind = value.type()
    if kind.kind() != "TensorType":
        return []
    sizes: list[int] | None = kind.sizes()
    if sizes is None:
        raise ShapeMissingError(f"the traced graph holds no shape for {value.debugName()}")
    return sizes


def broadcast(*shapes: list[int]) -> list[int]:
    """The broadcast of tensor sizes."""
    rank = max(map(len, shapes))
    aligned = ([1] * (rank - len(sizes)) + sizes for sizes in shapes)
    return [next((side for side in sides if side != 1), 1) for sides in zip(*aligned, strict=True)]


def elements_of(value: Value) -> list[Value]:
    """The elements of a list argument: tensors or numbers."""
    return list(value.node().inputs())


def whole_numbers(value: Value) -> list[int]:
    """A list of integers, constant or assembled in the graph."""
    constant = value.toIValue()
    return list(constant) if constant is not None else [int(number.toIValue()) for number in elements_of(value)]


def counts(macs: int, elementwise: int = 0) -> Counts:
    """Multiply-accumulates of contractions, and FLOPs beside them."""
    return Counter(macs=macs, flops=2 * macs + elementwise)


def contraction(output: Value, macs: int, elementwise: int = 0) -> Counts:
    """Costs of a contraction. A complex one counts FLOPs: a product takes 6, a sum 2."""
    per_mac = FLOPS_PER_ELEMENT["complex_multiply"] + 2 if is_complex(output) else 2
    return Counter(macs=macs, flops=per_mac * macs + elementwise)


def not_counted(what: str) -> Counts:
    """One operation that the report lists as not counted."""
    return Counter({what: 1})


def given(value: Value) -> bool:
    """Is an optional argument present?"""
    return bool(value.type().kind() != "NoneType")


def is_float(value: Value) -> bool:
    """Is it a tensor of floats? Traced shape arithmetic is integer and costs nothing."""
    kind = value.type()
    return bool(kind.kind() == "TensorType" and (kind.scalarType() or "").startswith(_FLOATS))


def is_complex(value: Value) -> bool:
    """Is it a tensor of complex numbers?"""
    kind = value.type()
    return bool(kind.kind() == "TensorType" and kind.scalarType() in ("ComplexFloat", "ComplexDouble"))


def is_shape_arithmetic(node: Any) -> bool:
    """Does a traced operation compute sizes only? In a trace, sizes are tensors of one integer.

    Integers count as sizes, floats only if computed from sizes.
    """
    tensors = [value for value in (*node.inputs(), *node.outputs()) if value.type().kind() == "TensorType"]
    if not tensors or any(value.type().sizes() != [] for value in tensors):
        return False
    if all(value.type().scalarType() == "Long" for value in tensors):
        return True
    return all(_is_of_sizes(value) for value in node.inputs())


def _is_of_sizes(value: Value) -> bool:
    """Is it a constant, or computed from sizes and constants?"""
    node = value.node()
    if value.type().kind() == "TensorType" and value.type().sizes() != []:
        return False
    if node.kind() in {"prim::Constant", "aten::size", "prim::NumToTensor"}:
        return True
    return node.kind() != "prim::Param" and all(_is_of_sizes(given) for given in node.inputs())


# Nodes that pack and unpack values. Other nodes in torch's own namespace are work if they return a tensor
# or have a body (a call, a loop, a branch of scripted code, an autograd function).
_GLUE: Final = frozenset(
    f"prim::{name}" for name in ["Constant", "NumToTensor", "ListUnpack", "TupleUnpack", "TupleIndex", "data"]
)


def is_glue(node: Any) -> bool:
    """Does the node only pack or unpack values?"""
    kind = node.kind()
    if not kind.startswith("prim::") or next(node.blocks(), None) is not None:
        return False
    return kind in _GLUE or all(value.type().kind() != "TensorType" for value in node.outputs())
