"""Costs of contractions: products of matrices and vectors, convolutions, attention, recurrences and scans.

A formula takes the positional arguments of a call and its result: torch's tensors, or objects that know their sizes and
type alone (`SizesAlone`). It returns {"macs", "flops", …}.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, TypeGuard

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.ledger.units import Number

Costs = Counter[str]


class Cost(Costs):
    """Costs of one call, made without the loops of `Counter`, which would take as long as the formula."""

    def __init__(self, quantities: Mapping[str, Number] | None = None, /, **more: Number) -> None:
        dict.__init__(self, quantities or {}, **more)


# (positional arguments, result) -> costs; None where the convention has none
Formula = Callable[[tuple[Any, ...], Any], Costs | None]


class SizesAlone(ABC):
    """A tensor of which a formula knows sizes and type alone, as a traced graph has it."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> Sequence[Number]:
        """The sizes."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> Number:
        return prod(self.shape)

    @abstractmethod
    def is_floating_point(self) -> bool:
        """Are its elements floats?"""

    @abstractmethod
    def is_complex(self) -> bool:
        """Are its elements complex numbers?"""


ADD: Final = FLOPS_PER_ELEMENT["add"]
MULTIPLY: Final = FLOPS_PER_ELEMENT["multiply"]
COMPLEX_MULTIPLY: Final = FLOPS_PER_ELEMENT["complex_multiply"]


def is_tensor(value: object) -> TypeGuard[Any]:
    """Is it a tensor of torch, or `SizesAlone`? No other argument has the method: of a dtype it is a bool."""
    return callable(getattr(value, "is_floating_point", None))


def first(result: Any) -> Any:
    """The result, or the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def contraction(result: Any, macs: Number, sums: Number = 0, others: Number = 0, **quantities: Number) -> Costs:
    """Multiply-accumulates, FLOPs of sums and of other work too, and more quantities. Complex: a product 6, a sum 2."""
    output = first(result)
    if is_tensor(output) and output.is_complex():
        return Cost(macs=macs, flops=(COMPLEX_MULTIPLY + 2 * ADD) * macs + 2 * sums + others, **quantities)
    return Cost(macs=macs, flops=2 * macs + sums + others, **quantities)


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


def _trilinear(args: tuple[Any, ...], result: Any) -> Costs:
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
    return contraction(result, positions.numel() * prod(args[1].shape[1:]), bias)


def _attention(args: tuple[Any, ...], result: Any) -> Costs:
    """softmax(QKᵀ·scale + bias)V, q (…, n, k), k (…, m, k), v (…, m, v): the dense products, masked or not.

    (q, k, v, mask, dropout, causal, scale, …); a boolean mask costs nothing, nor does a scale of 1.
    """
    bias, scale = (args[place] if len(args) > place else None for place in (3, 6))
    queries = prod(result.shape[:-1])
    entries = queries * args[1].shape[-2]
    biased = is_tensor(bias) and bias.is_floating_point()
    per_entry = FLOPS_PER_ELEMENT["softmax"] + (ADD if biased else 0)
    scaling = 0 if scale == 1 else queries * args[1].shape[-1] * MULTIPLY
    return _attention_products(args, result, scaling + entries * per_entry)


def _attention_products(args: tuple[Any, ...], result: Any, others: Number = 0) -> Costs:
    """QKᵀ and AV alone, of a kernel's call; and other work."""
    entries = prod(first(result).shape[:-1]) * args[1].shape[-2]
    return contraction(result, entries * (args[1].shape[-1] + args[2].shape[-1]), others=others)


# ── recurrences and scans ──


def _torch_recurrence(gates: int, work: int) -> Formula:
    """`nn.LSTM`, `nn.GRU`, `nn.RNN`: each token meets each matrix of each layer and direction once.

    (…, parameters, has_biases, num_layers, dropout, train, bidirectional, …): the last list of tensors holds them. A
    layer's parameters are its maps of the input (gates·h, in) and of the state (gates·h, h), their biases, and the
    projection of the state (p, h). Tokens are (N, B, …), (B, N, …) or, packed, (all tokens, …).
    """

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        lists = [n for n, arg in enumerate(args) if isinstance(arg, list | tuple) and arg]
        place = max(n for n in lists if is_tensor(args[n][0]))
        weights, layers = args[place], args[place + 2] * (2 if args[place + 5] else 1)
        tokens, each, total = prod(args[0].shape[:-1]), len(weights) // layers, Counter[str]()
        for start in range(0, len(weights), each):
            of_layer = weights[start : start + each]
            matrices = sum(one.numel() for one in of_layer if one.ndim == 2)  # noqa: PLR2004
            biases = sum(one.numel() for one in of_layer if one.ndim == 1)
            elementwise = tokens * (of_layer[0].shape[0] // gates * work + biases * ADD)
            moved = tokens * of_layer[1].shape[1]  # h, or its projection
            total.update(contraction(result, tokens * matrices, others=elementwise, moved=moved))
        return total

    return formula


def _recurrence(work: int) -> Formula:
    """x (…, N, gates·h) and the state's map (gates·h, h): N steps of its product, and `work` per hidden unit."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        x, (gates, units) = args[0], args[1].shape
        steps, biases = x.numel() // gates, 0 if args[2] is None else x.numel() * ADD
        return contraction(result, steps * gates * units, biases, steps * units * work, moved=steps * units)

    return formula


def _selective_scan(args: tuple[Any, ...], result: Any) -> Costs:
    """u (…, N, e), A (e, s): N steps over e·s state elements, each read out by a product; and Δ∘u."""
    elements, states = args[0].numel(), args[2].shape[1]
    work = elements * (states * FLOPS_PER_ELEMENT["selective_scan"] + MULTIPLY)
    return contraction(result, elements * states, others=work, moved=elements)


def _retention(args: tuple[Any, ...], result: Any) -> Costs:
    """q (…, N, h·k), v (…, N, h·v), γ (h,): N steps over a state of h·k·v: an update product, a read-out, a decay."""
    q, _, v, decay = args[:4]
    numbers = v.numel() * q.shape[-1] // decay.shape[0]
    return contraction(result, 2 * numbers, others=numbers * (MULTIPLY + ADD), moved=v.numel())


CONTRACTIONS: Final[dict[Formula, str]] = {
    _products(0, term=2): "linear mkldnn_linear",
    _products(0): "matmul mm bmm mv dot vdot _int_mm _weight_int8pack_mm _weight_int4pack_mm",
    _products(1, term=0): "addmm addmm_ _addmm_activation baddbmm baddbmm_ addmv addmv_",
    _products(0, term=4): "_scaled_mm",
    _added_products: "addbmm addbmm_",
    _trilinear: "_trilinear",
    lambda args, result: Cost(flops=result.numel() * args[0].shape[-1] * FLOPS_PER_ELEMENT["distance"]): (
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
    lambda args, result: Cost(
        flops=args[0].numel() * FLOPS_PER_ELEMENT["wkv"], comparisons=2 * args[0].numel(), moved=args[0].numel()
    ): "wkv",
    _retention: "retention",
    # (…, C, numbers): C steps of a decay and a sum per element; the states are written out
    lambda args, result: Cost(flops=args[0].numel() * (MULTIPLY + ADD), moved=args[0].numel()): "decayed_sums",
}
