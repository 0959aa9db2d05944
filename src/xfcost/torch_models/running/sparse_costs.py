"""Costs of sparse and quantised operations: of what is stored, which only tensors of torch know."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.formulas.contractions import ADD, Costs, Formula, contraction
from xfcost.torch_models.shared.private_torch import disable_current_modes, elements_stored


def is_sparse(value: Any) -> bool:
    """Is it a tensor of a sparse layout?"""
    return isinstance(value, Tensor) and value.layout not in (torch.strided, torch.jagged)


def stored_unknown(value: Any) -> bool:
    """Is it a sparse tensor without numbers, made from a dense one? It stores nothing, whatever the numbers are."""
    if not is_sparse(value) or not (value.is_meta or hasattr(value, "fake_mode")):
        return False
    with disable_current_modes():
        return elements_stored(value) == 0


def _stored(matrix: Tensor) -> int:
    """The stored elements of a sparse matrix."""
    if matrix.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return matrix.values().numel()
    return elements_stored(matrix) * prod(matrix.shape[matrix.sparse_dim() + matrix.dense_dim() :])


# Operation -> the place of its first operand. torch writes a product as added to zeros: the term before it is none.
SPARSE_PRODUCTS: Final[dict[str, int]] = {
    **dict.fromkeys(("aten::mm", "aten::_sparse_mm", "aten::bmm", "aten::mv", "aten::_sparse_mm_reduce_impl"), 0),
    **dict.fromkeys(("aten::addmm", "aten::_sparse_addmm", "aten::baddbmm", "aten::sparse_sampled_addmm"), 1),
}


def sparse_costs(operation: str, args: tuple[Any, ...], result: Any) -> Costs | None:
    """A product per stored element and column; None of two sparse operands, or of numbers that are missing.

    A sampled product is that of its stored outputs.
    """
    if any(map(stored_unknown, args)):
        return None
    place = SPARSE_PRODUCTS[operation]
    left, right = args[place], args[place + 1]
    if operation == "aten::sparse_sampled_addmm":
        return contraction(result.values(), _stored(result) * left.shape[-1])
    if is_sparse(left) == is_sparse(right):
        return None
    if not is_sparse(left):
        return contraction(result, _stored(right) * left.shape[-2])
    return contraction(result, _stored(left) * (right.shape[-1] if right.ndim > 1 else 1))


def _quantised(args: tuple[Any, ...], result: Tensor) -> Costs:
    """(x, packed weights and bias, …), a linear map or a convolution: the weights of an output element, and a sum."""
    with disable_current_modes():  # unpacking makes tensors, which the model does not
        weight, bias = args[1].unpack()
    macs = result.numel() * prod(weight.shape[1:])
    return contraction(result, macs, 0 if bias is None else result.numel() * ADD)


QUANTISED: Final[dict[str, Formula]] = dict.fromkeys(
    (
        "quantized::linear", "quantized::linear_relu", "quantized::linear_dynamic", "quantized::linear_relu_dynamic",
        "quantized::linear_dynamic_fp16", "quantized::linear_relu_dynamic_fp16", "quantized::conv2d",
        "quantized::conv2d_relu",
    ),
    _quantised,
)  # fmt: skip
