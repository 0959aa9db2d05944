"""Costs of contractions that torch's own table lacks or counts densely: sparse, quantised, grouped, fused, recurrent.

Each formula takes the call's positional arguments and its result, and returns {"macs", "flops", …}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.shared.private_torch import aten_operations, elements_stored
from xfcost.torch_models.tracing.elementwise_costs import Costs, Formula, first

aten: Final = torch.ops.aten
ADD: Final = FLOPS_PER_ELEMENT["add"]
_COMPLEX_PER_MAC: Final = FLOPS_PER_ELEMENT["complex_multiply"] + 2


def counted(macs: int, elementwise: int = 0) -> Costs:
    """Multiply-accumulates of a contraction, and FLOPs beside them."""
    return Counter(macs=macs, flops=2 * macs + elementwise)


def complex_corrected(found: Costs, result: Any) -> Costs:
    """A complex multiply-accumulate is 8 FLOPs: a product takes 6, a sum 2; an added term 2."""
    if not found["macs"] or not isinstance(result, Tensor) or not result.is_complex():
        return found
    added = found["flops"] - 2 * found["macs"]
    return Counter(macs=found["macs"], flops=_COMPLEX_PER_MAC * found["macs"] + 2 * added)


def stored(matrix: Tensor) -> int:
    """The stored elements of a sparse matrix."""
    if matrix.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return matrix.values().numel()
    return elements_stored(matrix) * prod(matrix.shape[matrix.sparse_dim() + matrix.dense_dim() :])


def is_sparse(value: Any) -> bool:
    """Is it a tensor of a sparse layout?"""
    return isinstance(value, Tensor) and value.layout not in (torch.strided, torch.jagged)


def sparse_product(left: Tensor, right: Tensor) -> int | None:
    """MACs of a product with one sparse operand: a product per stored element; None of two sparse ones."""
    if is_sparse(left) and is_sparse(right):
        return None
    return stored(left) * right.shape[-1] if is_sparse(left) else stored(right) * left.shape[-2]


# Operation -> the place of its first operand; a term before it is added.
SPARSE_PRODUCTS: Final[dict[Any, int]] = {
    **dict.fromkeys(aten_operations("mm _sparse_mm bmm mv"), 0),
    **dict.fromkeys(aten_operations("addmm _sparse_addmm baddbmm"), 1),
}  # fmt: skip


def sparse_costs(packet: Any, args: tuple[Any, ...], result: Any) -> Costs | None:
    """The costs of a product with a sparse operand; None where there is none, or no formula."""
    place = SPARSE_PRODUCTS[packet]
    left, right = args[place], args[place + 1]
    if packet is aten.mv:
        return counted(stored(left)) if is_sparse(left) else None
    macs = sparse_product(left, right)
    # torch writes a product as added to zeros
    return None if macs is None else counted(macs)


def _per_output_of(operand: int, axis: int = -1) -> Formula:
    """Each element of the output is a dot product as long as an axis of an operand."""
    return lambda args, result: counted(first(result).numel() * args[operand].shape[axis])


def _biased(operand: int, bias: int) -> Formula:
    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        added = result.numel() * ADD if len(args) > bias and args[bias] is not None else 0
        return counted(result.numel() * args[operand].shape[-1], added)

    return formula


def _added_products(args: tuple[Any, ...], result: Tensor) -> Costs:
    """added + the sum over b of (b, n, k) · (b, k, m)."""
    samples, _, k = args[1].shape
    return counted(result.numel() * samples * k, result.numel() * ADD)


def _grouped(args: tuple[Any, ...], result: Tensor) -> Costs:
    """One product per group: (G, n, k) · (G, k, m), or with rows, columns or the summed axis cut into groups."""
    left, right = args[:2]
    if left.ndim == right.ndim == 2:  # noqa: PLR2004
        return counted(left.numel() * right.shape[1])
    return counted(result.numel() * left.shape[-1])


def attention_macs(q: Tensor, k: Tensor, v: Tensor) -> int:
    """QKᵀ and AV: q (…, N, K), k (…, M, K), v (…, M, V)."""
    return q.shape[:-1].numel() * k.shape[-2] * (k.shape[-1] + v.shape[-1])


def _attention(args: tuple[Any, ...], result: Any) -> Costs:
    """A fused kernel."""
    return counted(attention_macs(*args[:3]))


def _trilinear(args: tuple[Any, ...], result: Tensor) -> Costs:
    """The product of two of three tensors, summed over what the third lacks, then that with the third, added up.

    `nn.Bilinear`: x₁ (B, i) · weight (o, i, j), summed over i, then · x₂ (B, j). Its gradients are such products too.
    """
    *tensors, expanded_1, expanded_2, expanded_3, summed = args[:7]
    axes: list[set[int]] = []
    sizes: dict[int, int] = {}
    for tensor, expanded in zip(tensors, (expanded_1, expanded_2, expanded_3), strict=True):
        own = [axis for axis in range(tensor.ndim + len(expanded)) if axis not in expanded]
        axes.append(set(own))
        sizes |= dict(zip(own, tensor.shape, strict=True))
    first = axes[0] | axes[1]
    second = first - (set(summed) - axes[2]) | axes[2]
    macs = sum(prod(sizes[axis] for axis in each) for each in (first, second))
    return counted(macs, result.numel() * ADD)


def _euclidean(args: tuple[Any, ...], result: Tensor) -> Costs:
    """Distances of (…, P, d) and (…, R, d) as √(|x|² - 2xy + |y|²), by one product of width d + 2."""
    left, right = args[:2]
    lengths = (left.numel() + right.numel()) * FLOPS_PER_ELEMENT["norm"] + left.numel() * FLOPS_PER_ELEMENT["multiply"]
    rest = result.numel() * (FLOPS_PER_ELEMENT["clamp"] + FLOPS_PER_ELEMENT["exp"])
    return counted(result.numel() * (left.shape[-1] + 2), lengths + rest)


def _quantised_convolution(args: tuple[Any, ...], result: Tensor) -> Costs:
    """(x, packed weights, …): in/groups·kernel products per element of the output."""
    weight, bias = torch.ops.quantized.conv2d_unpack(args[1])
    return counted(result.numel() * prod(weight.shape[1:]), 0 if bias is None else result.numel() * ADD)


def _quantised_linear(args: tuple[Any, ...], result: Tensor) -> Costs:
    """(x, packed weights, …): the bias is packed with them."""
    _, bias = _unpacked(args[1])
    return counted(result.numel() * args[0].shape[-1], 0 if bias is None else result.numel() * ADD)


def _unpacked(packed: Any) -> tuple[Tensor, Tensor | None]:
    weight, bias = packed.unpack() if hasattr(packed, "unpack") else torch.ops.quantized.linear_unpack(packed)
    return weight, bias


def _of(namespace: str, names: str, formula: Formula) -> dict[Any, Formula]:
    library = getattr(torch.ops, namespace)
    return {getattr(library, name): formula for name in names.split() if hasattr(library, name)}


CONTRACTIONS: Final[dict[Any, Formula]] = {
    **_of("aten", "linear mkldnn_linear", _biased(0, 2)),
    **_of("aten", "matmul _int_mm _weight_int8pack_mm _weight_int4pack_mm inner", _per_output_of(0)),
    **_of("aten", "_addmm_activation addmm_ baddbmm_ addmv_", lambda args, result: counted(
        result.numel() * args[1].shape[-1], result.numel() * ADD)),
    **_of("aten", "addbmm addbmm_", _added_products),
    **_of("aten", "_grouped_mm _scaled_grouped_mm", _grouped),
    **_of("aten", "_trilinear", _trilinear),
    **_of("aten", "_euclidean_dist", _euclidean),
    **_of(
        "aten",
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable "
        "_scaled_dot_product_attention_math_for_mps",
        _attention,
    ),
    **_of("quantized", "linear linear_relu linear_dynamic linear_relu_dynamic", _quantised_linear),
    **_of("quantized", "linear_dynamic_fp16 linear_relu_dynamic_fp16", _quantised_linear),
    **_of("quantized", "conv2d conv2d_relu", _quantised_convolution),
}  # fmt: skip


def recurrent(gates: int, work: int) -> Callable[[tuple[Any, ...], dict[str, Any], Any], Costs]:
    """`nn.LSTM`, `nn.GRU`, `nn.RNN`: each token meets each matrix of each layer and direction once.

    A layer's parameters are its maps of the input (gates·h, in) and of the state (gates·h, h), their biases, and the
    projection of the state (p, h). Tokens are (N, B, …), (B, N, …) or, packed, (all tokens, …).
    """

    def formula(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs:
        lists = [arg for arg in args if isinstance(arg, tuple | list) and arg and isinstance(arg[0], Tensor)]
        place = next(place for place, arg in enumerate(args) if arg is lists[-1])
        weights, layers = lists[-1], args[place + 2] * (2 if args[place + 5] else 1)
        tokens, each, total = args[0].shape[:-1].numel(), len(weights) // layers, Counter[str]()
        for start in range(0, len(weights), each):
            of_layer = weights[start : start + each]
            matrices = sum(one.numel() for one in of_layer if one.ndim == 2)  # noqa: PLR2004
            biases = sum(one.numel() for one in of_layer if one.ndim == 1)
            total += counted(tokens * matrices, tokens * (of_layer[0].shape[0] // gates * work + biases * ADD))
            total += Counter(moved=tokens * of_layer[1].shape[1])
        return total

    return formula
