"""Values of a traced graph, and what an operation on them costs: what all handles are written with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

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


def counts(macs: int, elementwise: int = 0) -> Counts:
    """Multiply-accumulates of contractions, and FLOPs beside them."""
    return Counter(macs=macs, flops=2 * macs + elementwise)


def given(value: Value) -> bool:
    """Is an optional argument there?"""
    return bool(value.type().kind() != "NoneType")


def is_float(value: Value) -> bool:
    """Is it a tensor of floats? Shape arithmetic is traced too, as whole numbers, and costs nothing."""
    kind = value.type()
    return bool(kind.kind() == "TensorType" and kind.scalarType() in ("Float", "Double", "Half", "BFloat16"))


def is_complex(value: Value) -> bool:
    """Is it a tensor of complex numbers, as spectra are?"""
    kind = value.type()
    return bool(kind.kind() == "TensorType" and kind.scalarType() in ("ComplexFloat", "ComplexDouble"))


def is_shape_arithmetic(node: Any) -> bool:
    """Does a traced operation work on single whole numbers alone? While a trace runs, sizes are such tensors."""
    tensors = [value for value in (*node.inputs(), *node.outputs()) if value.type().kind() == "TensorType"]
    return bool(tensors) and all(
        value.type().sizes() == [] and value.type().scalarType() == "Long" for value in tensors
    )
