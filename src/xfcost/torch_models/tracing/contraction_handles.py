"""fvcore handles of contractions: products of matrices and vectors, convolutions and attention.

Each counts multiply-accumulates from the sizes of the output and the summed axis. An operation that runs several
products (`multi_dot`, `bilinear`, `cdist`) counts all of them.
"""

from __future__ import annotations

from math import prod
from typing import Final

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.tracing.einsum_handle import einsum
from xfcost.torch_models.tracing.graph import (
    Counts,
    Handle,
    Value,
    broadcast,
    contraction,
    counts,
    elements_of,
    given,
    is_float,
    shape,
    whole_numbers,
)

ADD: Final = FLOPS_PER_ELEMENT["add"]
MULTIPLY: Final = FLOPS_PER_ELEMENT["multiply"]


def linear(inputs: list[Value], outputs: list[Value]) -> Counts:
    """x (…, in) · weight (out, in)ᵀ + bias."""
    elements = prod(shape(outputs[0]))
    bias = elements * ADD if len(inputs) > 2 and given(inputs[2]) else 0  # noqa: PLR2004
    return contraction(outputs[0], elements * shape(inputs[0])[-1], bias)


def matmul(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(…, n, k) · (…, k, m): each element of the output is a dot product of length k, with or without broadcasting.

    Vectors too: `mv`, `dot`, `vdot`.
    """
    return contraction(outputs[0], prod(shape(outputs[0])) * shape(inputs[0])[-1])


def inner(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(…, k) · (…, k) over the last axis. With a scalar it is a multiplication."""
    left, right = shape(inputs[0]), shape(inputs[1])
    elements = prod(shape(outputs[0]))
    return contraction(outputs[0], elements * left[-1]) if left and right else counts(0, elements * MULTIPLY)


def added_product(inputs: list[Value], outputs: list[Value]) -> Counts:
    """added + (n, k) · (k, m): `addmm`, `baddbmm`, and `addmv` of a vector."""
    elements = prod(shape(outputs[0]))
    return contraction(outputs[0], elements * shape(inputs[1])[-1], elements * ADD)


def added_products(inputs: list[Value], outputs: list[Value]) -> Counts:
    """added + the sum over b of (b, n, k) · (b, k, m): `addbmm`."""
    samples, _, k = shape(inputs[1])
    elements = prod(shape(outputs[0]))
    return contraction(outputs[0], elements * samples * k, elements * ADD)


def every_pair(inputs: list[Value], outputs: list[Value]) -> Counts:
    """The product of each pair, without a sum: `outer`, `kron`."""
    return counts(0, prod(shape(outputs[0])) * MULTIPLY)


def vector_dots(inputs: list[Value], outputs: list[Value]) -> Counts:
    """`linalg.vecdot`: torch multiplies element-wise, and sums."""
    pairs = prod(broadcast(shape(inputs[0]), shape(inputs[1])))
    return counts(0, pairs * (MULTIPLY + FLOPS_PER_ELEMENT["sum"]))


def tensordot(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Sums over pairs of axes. If one of a pair has size 1, torch sums the other first."""
    left, right = shape(inputs[0]), shape(inputs[1])
    left_rest, right_rest, summed = prod(left), prod(right), 1
    sums = 0
    for one, other in zip(whole_numbers(inputs[2]), whole_numbers(inputs[3]), strict=True):
        sides = left[one], right[other]
        if sides[0] == sides[1]:
            summed *= sides[0]
        sums += right_rest if sides[0] == 1 < sides[1] else left_rest if sides[1] == 1 < sides[0] else 0
        left_rest, right_rest = left_rest // sides[0], right_rest // sides[1]
    return contraction(outputs[0], prod(shape(outputs[0])) * summed, sums * FLOPS_PER_ELEMENT["sum"])


def product_chain(inputs: list[Value], outputs: list[Value]) -> Counts:
    """`multi_dot` and `chain_matmul`, in the order with the fewest multiply-accumulates, as torch chooses."""
    first, *middle, last = (shape(value) for value in elements_of(inputs[0]))
    matrices = [[1] * (2 - len(first)) + first, *middle, last + [1] * (2 - len(last))]  # a vector counts as a matrix
    sides = [matrices[0][0], *(columns for _, columns in matrices)]
    return contraction(outputs[0], _fewest_macs(sides))


def _fewest_macs(sides: list[int]) -> int:
    """The minimum over all bracketings of a chain of matrices (s₀, s₁) · (s₁, s₂) · …."""
    matrices = len(sides) - 1
    fewest = {(i, i): 0 for i in range(matrices)}
    for length in range(2, matrices + 1):
        for i in range(matrices - length + 1):
            j = i + length - 1
            fewest[i, j] = min(
                fewest[i, k] + fewest[k + 1, j] + sides[i] * sides[k + 1] * sides[j + 1] for k in range(i, j)
            )
    return fewest[0, matrices - 1]


def bilinear(inputs: list[Value], outputs: list[Value]) -> Counts:
    """x₁ (…, i), x₂ (…, j), weight (o, i, j): for each of o, x₁ · weight, then · x₂, added to the output."""
    _, i, j = shape(inputs[2])
    elements = prod(shape(outputs[0]))
    sums = 2 if given(inputs[3]) else 1
    return contraction(outputs[0], elements * j * (i + 1), elements * sums * ADD)


# By default `cdist` uses one product if either side has more vectors than this.
_MOST_VECTORS_WITHOUT_PRODUCT: Final = 25
_ALWAYS_PRODUCT, _NEVER_PRODUCT = 1, 2


def pairwise_distances(inputs: list[Value], outputs: list[Value]) -> Counts:
    """`cdist` of (…, P, d) and (…, R, d).

    Computed element-wise, or as |x|² - 2xy + |y|² by one product of width d + 2.
    """
    left, right = shape(inputs[0]), shape(inputs[1])
    pairs = prod(shape(outputs[0]))
    mode = inputs[3].toIValue() or 0
    many = max(left[-2], right[-2]) > _MOST_VECTORS_WITHOUT_PRODUCT
    if inputs[2].toIValue() != 2 or mode == _NEVER_PRODUCT or not (many or mode == _ALWAYS_PRODUCT):  # noqa: PLR2004
        return counts(0, pairs * left[-1] * FLOPS_PER_ELEMENT["distance"])
    lengths = (prod(left) + prod(right)) * FLOPS_PER_ELEMENT["norm"] + prod(left) * MULTIPLY
    rest = pairs * (FLOPS_PER_ELEMENT["clamp"] + FLOPS_PER_ELEMENT["exp"])
    return contraction(outputs[0], pairs * (left[-1] + 2), lengths + rest)


def grouped_matmul(inputs: list[Value], outputs: list[Value]) -> Counts:
    """One product per group: (G, n, k) · (G, k, m), or with rows, columns or the summed axis cut into groups.

    Each element of the output is a dot product of length k. If k is cut, the G products together sum over k once. The
    groups are assumed to cover the cut axis: their ends are runtime values.
    """
    left, right = shape(inputs[0]), shape(inputs[1])
    if len(left) == len(right) == 2:  # noqa: PLR2004
        return contraction(outputs[0], left[0] * left[1] * right[1])
    return contraction(outputs[0], prod(shape(outputs[0])) * left[-1])


def scaled_matmul(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(n, k) · (k, m) of 8-bit floats, its bias after both scales."""
    bias = prod(shape(outputs[0])) * ADD if len(inputs) > 4 and given(inputs[4]) else 0  # noqa: PLR2004
    return matmul(inputs, outputs) + counts(0, bias)


def convolution(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Weights (out, in/groups, *kernel): in/groups·kernel MACs per output element; transposed, per input element."""
    transposed = len(inputs) > 6 and inputs[6].toIValue() is True  # noqa: PLR2004
    return _convolution(inputs, outputs, shape(inputs[0] if transposed else outputs[0]))


def padded_convolution(inputs: list[Value], outputs: list[Value]) -> Counts:
    """With `padding="same"` or `"valid"`; never transposed."""
    return _convolution(inputs, outputs, shape(outputs[0]))


def _convolution(inputs: list[Value], outputs: list[Value], positions: list[int]) -> Counts:
    bias = prod(shape(outputs[0])) * ADD if given(inputs[2]) else 0
    return contraction(outputs[0], prod(positions) * prod(shape(inputs[1])[1:]), bias)


def fused_attention(inputs: list[Value], outputs: list[Value]) -> Counts:
    """softmax(QKᵀ/√k + bias)V, q (…, n, k), k (…, m, k), v (…, m, v): the dense products, masked or not."""
    width, m = shape(inputs[1])[-1], shape(inputs[1])[-2]
    *lead, n, value_width = shape(outputs[0])
    entries = prod(lead) * n * m
    biased = given(inputs[3]) and is_float(inputs[3])
    unscaled = len(inputs) > 6 and inputs[6].toIValue() == 1  # noqa: PLR2004 - the scale; 1/√k where it isn't given
    scaling = 0 if unscaled else prod(lead) * n * width * MULTIPLY
    elementwise = entries * FLOPS_PER_ELEMENT["softmax"] + scaling
    return counts(entries * (width + value_width), elementwise + (entries * ADD if biased else 0))


CONTRACTIONS: Final[dict[str, Handle]] = {
    "aten::linear": linear,
    # x (P, d), matrices of E experts (E, h, d), optional bias; each row meets one matrix
    "xfcost::grouped_linear": linear,
    **{f"aten::{name}": matmul for name in ["matmul", "mm", "bmm", "mv", "dot", "vdot", "_int_mm"]},
    **{f"aten::{name}": added_product for name in ["addmm", "addmm_", "baddbmm", "baddbmm_", "addmv", "addmv_"]},
    **{f"aten::{name}": added_products for name in ["addbmm", "addbmm_"]},
    **{f"aten::{name}": every_pair for name in ["outer", "ger", "kron"]},
    "aten::inner": inner,
    "aten::linalg_vecdot": vector_dots,
    "aten::tensordot": tensordot,
    "aten::einsum": einsum,
    "aten::linalg_multi_dot": product_chain,
    "aten::chain_matmul": product_chain,
    "aten::bilinear": bilinear,
    "aten::cdist": pairwise_distances,
    "aten::_grouped_mm": grouped_matmul,
    "aten::_scaled_grouped_mm": grouped_matmul,
    "aten::_scaled_mm": scaled_matmul,
    "aten::_convolution": convolution,
    "aten::convolution": convolution,
    "aten::_convolution_mode": padded_convolution,
    "aten::scaled_dot_product_attention": fused_attention,
}
