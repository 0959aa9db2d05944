"""A traced graph: its tensors as formulas read them, and its nodes that do no work."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.running.contractions import SizesAlone

# A value of the traced graph: torch._C.Value, which has no public type.
Value = Any
RUNTIME: Final = object()
"""Stands for an argument that is no tensor and has no value before the model runs."""


class ShapeMissingError(ValueError):
    """The trace has no shape for a tensor: nested, sparse, or from scripted code."""


class TracedTensor(SizesAlone):
    """A tensor of a traced graph, which has sizes and a type, and what of a tensor follows from them."""

    def __init__(self, value: Value) -> None:
        self._value = value

    @property
    def shape(self) -> torch.Size:
        """The sizes.

        Raises:
            ShapeMissingError: the trace didn't record them.
        """
        sizes = self._value.type().sizes()
        if sizes is None:
            raise ShapeMissingError(f"the traced graph holds no shape for {self._value.debugName()}")
        return torch.Size(sizes)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements."""
        return self.shape.numel()

    def is_floating_point(self) -> bool:
        """Are its elements floats? Traced shape arithmetic is integer and costs nothing."""
        dtype = self._value.type().dtype()
        return dtype is not None and dtype.is_floating_point

    def is_complex(self) -> bool:
        """Are they complex numbers?"""
        dtype = self._value.type().dtype()
        return dtype is not None and dtype.is_complex

    def on_meta(self) -> Tensor:
        """A tensor of its sizes and type."""
        return torch.empty(self.shape, dtype=self._value.type().dtype(), device="meta")


def argument(value: Value) -> Any:
    """An argument of a traced operation as a call has it: a tensor, a constant, or a list of them."""
    kind = value.type().kind()
    if kind == "TensorType":
        return TracedTensor(value)
    if kind == "NoneType":
        return None
    if value.node().kind() == "prim::ListConstruct":
        return [argument(one) for one in value.node().inputs()]
    constant = value.toIValue()
    return RUNTIME if constant is None else constant


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
