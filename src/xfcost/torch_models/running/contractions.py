"""Costs of contractions: products of matrices and vectors, convolutions, attention, recurrences and scans.

A formula takes the positional arguments of a call and its result: tensors that a dispatcher sees, or the sizes that a
traced graph has. It returns {"macs", "flops", …}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.shared.private_torch import disable_current_modes, elements_stored

Costs = Counter[str]
# (positional arguments, result) -> costs; None where the convention has none
Formula = Callable[[tuple[Any, ...], Any], Costs | None]


class SizesAlone:
    """A tensor of which a formula knows sizes and type alone, as a traced graph has it."""


TENSORS: Final[tuple[Any, ...]] = (Tensor, SizesAlone)
ADD: Final = FLOPS_PER_ELEMENT["add"]
MULTIPLY: Final = FLOPS_PER_ELEMENT["multiply"]
COMPLEX_MULTIPLY: Final = FLOPS_PER_ELEMENT["complex_multiply"]


def first(result: Any) -> Any:
    """The result, or the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def contraction(result: Any, macs: int, sums: int = 0, others: int = 0) -> Costs:
    """Multiply-accumulates, and FLOPs of sums and of other work too. Complex: a product takes 6, a sum 2."""
    output = first(result)
    if isinstance(output, TENSORS) and output.is_complex():
        return Counter(macs=macs, flops=(COMPLEX_MULTIPLY + 2 * ADD) * macs + 2 * sums + others)
    return Counter(macs=macs, flops=2 * macs + sums + others)


def _products(operand: int, term: int = -1) -> Formula:
    """Each element of the result is a dot product over the last axis of an operand, with a term added if it is given.

    x (…, in) · weight (out, in)ᵀ + bias; (…, n, k) · (…, k, m) with or without broadcasting; added + (n, k) · (k, m).
    """

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        elements = first(result).numel()
        added = 0 <= term < len(args) and args[term] is not None
        return contraction(result, elements * args[operand].shape[-1], elements * ADD if added else 0)

    return formula


def _added_products(args: tuple[Any, ...], result: Any) -> Costs:
    """added + the sum over b of (b, n, k) · (b, k, m): `addbmm`."""
    samples, _, k = args[1].shape
    return contraction(result, result.numel() * samples * k, result.numel() * ADD)


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
    pair = axes[0] | axes[1]
    with_third = pair - (set(summed) - axes[2]) | axes[2]
    macs = sum(prod(sizes[axis] for axis in each) for each in (pair, with_third))
    return contraction(result, macs, result.numel() * ADD)


def _euclidean(args: tuple[Any, ...], result: Any) -> Costs:
    """Distances of (…, P, d) and (…, R, d) as √(|x|² - 2xy + |y|²), by one product of width d + 2."""
    left, right = args[:2]
    lengths = (left.numel() + right.numel()) * FLOPS_PER_ELEMENT["norm"] + left.numel() * MULTIPLY
    rest = result.numel() * (FLOPS_PER_ELEMENT["clamp"] + FLOPS_PER_ELEMENT["exp"])
    return contraction(result, result.numel() * (left.shape[-1] + 2), others=lengths + rest)


def _grouped(args: tuple[Any, ...], result: Any) -> Costs:
    """One product per group: (G, n, k) · (G, k, m), or with rows, columns or the summed axis cut into groups.

    Each element of the output is a dot product of length k. If k is cut, the G products together sum over k once. The
    groups are assumed to cover the cut axis: their ends are runtime values.
    """
    left, right = args[:2]
    if left.ndim == right.ndim == 2:  # noqa: PLR2004
        return contraction(result, left.numel() * right.shape[1])
    return contraction(result, result.numel() * left.shape[-1])


def _triangular_solve(args: tuple[Any, ...], result: Any) -> Costs:
    """L (…, n, n), B (…, n, m) or, from the right, (…, m, n): substitution. Of n unknowns the k-th takes k - 1 MACs.

    (L, B, upper, left, unitriangular), options of the default left out; without a diagonal of ones a division each.
    """
    has_ones = len(args) > 3 and args[-1] is True  # noqa: PLR2004 - `upper` alone is not it
    elements = result.numel()
    divide = COMPLEX_MULTIPLY if result.is_complex() else MULTIPLY
    return contraction(result, elements * (args[0].shape[-1] - 1) // 2, others=0 if has_ones else elements * divide)


def _convolution(args: tuple[Any, ...], result: Any) -> Costs:
    """Weights (out, in/groups, *kernel): in/groups·kernel MACs per output element; transposed, per input element."""
    transposed = len(args) > 6 and args[6] is True  # noqa: PLR2004
    positions = args[0] if transposed else result
    bias = 0 if args[2] is None else result.numel() * ADD
    return contraction(result, positions.numel() * args[1].shape[1:].numel(), bias)


def _attention(args: tuple[Any, ...], result: Any) -> Costs:
    """softmax(QKᵀ·scale + bias)V, q (…, n, k), k (…, m, k), v (…, m, v): the dense products, masked or not.

    (q, k, v, mask, dropout, causal, scale, …); a boolean mask costs nothing, nor does a scale of 1.
    """
    bias, scale = (args[place] if len(args) > place else None for place in (3, 6))
    queries, products = result.shape[:-1].numel(), _attention_products(args, result)
    entries = queries * args[1].shape[-2]
    biased = isinstance(bias, TENSORS) and bias.is_floating_point()
    per_entry = FLOPS_PER_ELEMENT["softmax"] + (ADD if biased else 0)
    scaling = 0 if scale == 1 else queries * args[1].shape[-1] * MULTIPLY
    return products + Counter(flops=scaling + entries * per_entry)


def _attention_products(args: tuple[Any, ...], result: Any) -> Costs:
    """QKᵀ and AV alone, of a kernel's call."""
    entries = first(result).shape[:-1].numel() * args[1].shape[-2]
    return contraction(result, entries * (args[1].shape[-1] + args[2].shape[-1]))


# ── recurrences and scans ──


def _torch_recurrence(gates: int, work: int) -> Formula:
    """`nn.LSTM`, `nn.GRU`, `nn.RNN`: each token meets each matrix of each layer and direction once.

    (…, parameters, has_biases, num_layers, dropout, train, bidirectional, …): the last list of tensors holds them. A
    layer's parameters are its maps of the input (gates·h, in) and of the state (gates·h, h), their biases, and the
    projection of the state (p, h). Tokens are (N, B, …), (B, N, …) or, packed, (all tokens, …).
    """

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        lists = [n for n, arg in enumerate(args) if isinstance(arg, list | tuple) and arg]
        place = max(n for n in lists if isinstance(args[n][0], TENSORS))
        weights, layers = args[place], args[place + 2] * (2 if args[place + 5] else 1)
        tokens, each, total = args[0].shape[:-1].numel(), len(weights) // layers, Counter[str]()
        for start in range(0, len(weights), each):
            of_layer = weights[start : start + each]
            matrices = sum(one.numel() for one in of_layer if one.ndim == 2)  # noqa: PLR2004
            biases = sum(one.numel() for one in of_layer if one.ndim == 1)
            elementwise = tokens * (of_layer[0].shape[0] // gates * work + biases * ADD)
            total += contraction(result, tokens * matrices, others=elementwise)
            total += Counter(moved=tokens * of_layer[1].shape[1])  # h, or its projection
        return total

    return formula


def _recurrence(work: int) -> Formula:
    """x (…, N, gates·h) and the state's map (gates·h, h): N steps of its product, and `work` per hidden unit."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        x, (gates, units) = args[0], args[1].shape
        steps, biases = x.numel() // gates, 0 if args[2] is None else x.numel() * ADD
        products = contraction(result, steps * gates * units, biases, steps * units * work)
        return products + Counter(moved=steps * units)

    return formula


def _selective_scan(args: tuple[Any, ...], result: Any) -> Costs:
    """u (…, N, e), A (e, s): N steps over e·s state elements, each read out by a product; and Δ∘u."""
    elements, states = args[0].numel(), args[2].shape[1]
    work = elements * (states * FLOPS_PER_ELEMENT["selective_scan"] + MULTIPLY)
    return contraction(result, elements * states, others=work) + Counter(moved=elements)


def _retention(args: tuple[Any, ...], result: Any) -> Costs:
    """q (…, N, h·k), v (…, N, h·v), γ (h,): N steps over a state of h·k·v: an update product, a read-out, a decay."""
    q, _, v, decay = args[:4]
    numbers = v.numel() * q.shape[-1] // decay.shape[0]
    return contraction(result, 2 * numbers, others=numbers * (MULTIPLY + ADD)) + Counter(moved=v.numel())


# ── sparse and quantised, which a graph doesn't show ──


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


CONTRACTIONS: Final[dict[Formula, str]] = {
    _products(0, term=2): "linear mkldnn_linear",
    _products(0): "matmul mm bmm mv dot vdot _int_mm _weight_int8pack_mm _weight_int4pack_mm",
    _products(1, term=0): "addmm addmm_ _addmm_activation baddbmm baddbmm_ addmv addmv_",
    _products(0, term=4): "_scaled_mm",
    _added_products: "addbmm addbmm_",
    _trilinear: "_trilinear",
    lambda args, result: Counter(flops=result.numel() * args[0].shape[-1] * FLOPS_PER_ELEMENT["distance"]): (
        "_cdist_forward"
    ),
    _euclidean: "_euclidean_dist",
    _grouped: "_grouped_mm _scaled_grouped_mm",
    _triangular_solve: "linalg_solve_triangular",
    _convolution: "convolution _convolution _convolution_mode",
    _attention: "scaled_dot_product_attention",
    _attention_products: """_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math_for_mps
    _scaled_dot_product_fused_attention_overrideable""",
    _torch_recurrence(4, FLOPS_PER_ELEMENT["lstm"]): "lstm",
    _torch_recurrence(3, FLOPS_PER_ELEMENT["gru"]): "gru",
    _torch_recurrence(1, ADD + FLOPS_PER_ELEMENT["tanh"]): "rnn_tanh",
    _torch_recurrence(1, ADD + FLOPS_PER_ELEMENT["relu"]): "rnn_relu",
}
# One node of a trace each; a dispatcher sees their steps.
LOOPS: Final[dict[Formula, str]] = {
    # x (P, d), matrices of E experts (E, h, d), optional bias; each row meets one matrix
    _products(0, term=2): "grouped_linear",
    _recurrence(ADD + FLOPS_PER_ELEMENT["tanh"]): "rnn_tanh",
    _recurrence(ADD + FLOPS_PER_ELEMENT["relu"]): "rnn_relu",
    _recurrence(FLOPS_PER_ELEMENT["gru"]): "gru_reset_after gru_reset_before",
    _recurrence(FLOPS_PER_ELEMENT["lstm"]): "lstm",
    _selective_scan: "selective_scan",
    # k (…, N, d): per channel and step its work and two maxima
    lambda args, result: Counter(
        flops=args[0].numel() * FLOPS_PER_ELEMENT["wkv"], comparisons=2 * args[0].numel(), moved=args[0].numel()
    ): "wkv",
    _retention: "retention",
    # (…, C, numbers): C steps of a decay and a sum per element; the states are written out
    lambda args, result: Counter(flops=args[0].numel() * (MULTIPLY + ADD), moved=args[0].numel()): "decayed_sums",
}
QUANTISED: Final[dict[Formula, str]] = {
    _quantised: """linear linear_relu linear_dynamic linear_relu_dynamic linear_dynamic_fp16 linear_relu_dynamic_fp16
    conv2d conv2d_relu"""
}
