"""What one traced operation costs, read from the traced graph's own shapes: fvcore handles.

Each returns {"macs", "flops", "comparisons", "moved"} by the written convention (`conventions.py`). They mend fvcore's
own: fused attention is counted, broadcast matmuls are not undercounted, einsum stays an integer, element-wise work is
seen. An operation that stands in neither table below is *unsupported*, and the report says so.
"""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from typing import Final

from xfcost.arithmetic import ceil_log2
from xfcost.conventions import FLOPS_PER_ELEMENT
from xfcost.live.graph import Counts, Handle, Value, counts, given, is_complex, is_float, shape
from xfcost.live.sequence_handles import SEQUENTIAL


def linear(inputs: list[Value], outputs: list[Value]) -> Counts:
    """x (…, in) · weight (out, in)ᵀ + bias."""
    elements = prod(shape(outputs[0]))
    bias = elements * FLOPS_PER_ELEMENT["add"] if len(inputs) > 2 and given(inputs[2]) else 0  # noqa: PLR2004
    return counts(elements * shape(inputs[0])[-1], bias)


def matmul(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(…, n, k) · (…, k, m): every element of the output is a dot product of length k, whatever was broadcast."""
    return counts(prod(shape(outputs[0])) * shape(inputs[0])[-1])


def addmm(inputs: list[Value], outputs: list[Value]) -> Counts:
    """added + (n, k) · (k, m); baddbmm too."""
    elements = prod(shape(outputs[0]))
    return counts(elements * shape(inputs[1])[-1], elements * FLOPS_PER_ELEMENT["add"])


def einsum(inputs: list[Value], outputs: list[Value]) -> Counts:
    """One multiply-accumulate per combination of all letters of the equation, for two operands.

    Where no letter is summed over, it is a multiplication of every pair (an outer product), and no contraction.
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
    work = prod(sizes.values())
    if set("".join(terms)) <= set(equation.partition("->")[2]):
        return counts(0, work * FLOPS_PER_ELEMENT["multiply"])
    return counts(work)


def convolution(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Weights (out, in/groups, *kernel): per output element in/groups·kernel MACs; transposed, per input element."""
    weight = shape(inputs[1])
    transposed = len(inputs) > 6 and inputs[6].toIValue() is True  # noqa: PLR2004
    positions = prod(shape(inputs[0])) if transposed else prod(shape(outputs[0]))
    bias = prod(shape(outputs[0])) * FLOPS_PER_ELEMENT["add"] if given(inputs[2]) else 0
    return counts(positions * prod(weight[1:]), bias)


def fused_attention(inputs: list[Value], outputs: list[Value]) -> Counts:
    """softmax(QKᵀ/√k + bias)V, q (…, n, k), k (…, m, k), v (…, m, v): the dense product, whatever is masked."""
    width, m = shape(inputs[1])[-1], shape(inputs[1])[-2]
    *lead, n, value_width = shape(outputs[0])
    entries = prod(lead) * n * m
    biased = given(inputs[3]) and is_float(inputs[3])
    unscaled = len(inputs) > 6 and inputs[6].toIValue() == 1  # noqa: PLR2004 - the scale; 1/√k where it isn't given
    scaling = 0 if unscaled else prod(lead) * n * width * FLOPS_PER_ELEMENT["multiply"]
    elementwise = entries * FLOPS_PER_ELEMENT["softmax"] + scaling
    return counts(entries * (width + value_width), elementwise + (entries * FLOPS_PER_ELEMENT["add"] if biased else 0))


def elementwise(work: str) -> Handle:
    """`work` per element of the output."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return counts(0, prod(shape(outputs[0])) * FLOPS_PER_ELEMENT[work] if is_float(outputs[0]) else 0)

    return handle


def multiplication(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Of real numbers, or of complex ones."""
    if is_complex(outputs[0]):
        return counts(0, prod(shape(outputs[0])) * FLOPS_PER_ELEMENT["complex_multiply"])
    return elementwise("multiply")(inputs, outputs)


def reduction(work: str) -> Handle:
    """`work` per element that enters."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return counts(0, prod(shape(inputs[0])) * FLOPS_PER_ELEMENT[work] if is_float(inputs[0]) else 0)

    return handle


def average_pool(inputs: list[Value], outputs: list[Value]) -> Counts:
    """A mean per window: kernel elements enter per element of the output, padding included."""
    return counts(0, prod(shape(outputs[0])) * _window(inputs) * FLOPS_PER_ELEMENT["mean"])


def adaptive_average_pool(rank: int) -> Handle:
    """A mean per window along `rank` axes: of n to p, the i-th from ⌊i·n/p⌋ to ⌈(i+1)·n/p⌉, and they may overlap."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        before, after = shape(inputs[0]), shape(outputs[0])
        entering = prod(after[:-rank])
        for n, p in zip(before[-rank:], after[-rank:], strict=True):
            entering *= sum(-((i + 1) * n // -p) - i * n // p for i in range(p))
        return counts(0, entering * FLOPS_PER_ELEMENT["mean"])

    return handle


def max_pool(inputs: list[Value], outputs: list[Value]) -> Counts:
    """A maximum per window: one comparison per element that enters it."""
    return Counter(comparisons=prod(shape(outputs[0])) * _window(inputs))


def _window(inputs: list[Value]) -> int:
    """Elements of a pooling window: `kernel_size` is written once per axis."""
    sides = [value.toIValue() for value in inputs[1].node().inputs()]
    return prod(sides) if sides else prod(inputs[1].toIValue())


def sort(inputs: list[Value], outputs: list[Value]) -> Counts:
    """⌈log₂ n⌉ comparisons per element of lists of n: a whole sort, or the top k of it."""
    axis = _axis(inputs, outputs)
    sizes = shape(inputs[0])
    return Counter(comparisons=prod(sizes) * ceil_log2(sizes[axis])) if sizes else Counter()


def _axis(inputs: list[Value], outputs: list[Value]) -> int:
    """The axis that is sorted: `dim` is the first whole number that may be negative; the last axis by default."""
    position = 2 if inputs[0].node().kind() == "aten::sort.stable" else 1
    if "topk" in outputs[0].node().kind():
        position = 2
    given = inputs[position].toIValue() if len(inputs) > position else -1
    if isinstance(given, bool):  # argsort(x, stable, dim)
        given = inputs[position + 1].toIValue()
    return -1 if given is None else int(given)


def choice(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Argmax or maximum: one comparison per element that enters."""
    return Counter(comparisons=prod(shape(inputs[0])))


def moved(inputs: list[Value], outputs: list[Value]) -> Counts:
    """The floating-point elements that are written."""
    return Counter(moved=prod(shape(outputs[0])) if is_float(outputs[0]) else 0)


def scattered(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Writing into a tensor: the elements of the source, not of the whole tensor; whole numbers are none."""
    floats = [value for value in inputs if is_float(value)]
    return Counter(moved=prod(shape(floats[-1])) if floats else 0)


def scatter_add(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Adding into a tensor: every element of the source is written, and added to what stands there."""
    counts = scattered(inputs, outputs)
    return counts + Counter(flops=counts["moved"] * FLOPS_PER_ELEMENT["add"])


def gelu(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Exact, or by the tanh formula."""
    form = "gelu_tanh" if len(inputs) > 1 and inputs[1].toIValue() == "tanh" else "gelu"
    return elementwise(form)(inputs, outputs)


COUNTED: dict[str, Handle] = {
    "aten::linear": linear,
    "aten::matmul": matmul,
    "aten::mm": matmul,
    "aten::bmm": matmul,
    "aten::addmm": addmm,
    "aten::baddbmm": addmm,
    "aten::einsum": einsum,
    "aten::_convolution": convolution,
    "aten::scaled_dot_product_attention": fused_attention,
    "aten::gelu": gelu,
    "aten::mul": multiplication,
    "aten::avg_pool1d": average_pool,
    "aten::avg_pool2d": average_pool,
    "aten::max_pool1d": max_pool,
    "aten::max_pool2d": max_pool,
    "aten::avg_pool3d": average_pool,
    "aten::max_pool3d": max_pool,
    "aten::sort": sort,
    "aten::argsort": sort,
    "aten::topk": sort,
    "aten::scatter_add": scatter_add,
} | SEQUENTIAL
# x (P, d) of which every row meets one of E matrices (E, h, d), with a bias or none
COUNTED |= {"xfcost::grouped_linear": linear}
COUNTED |= {f"aten::adaptive_avg_pool{rank}d": adaptive_average_pool(rank) for rank in (1, 2, 3)}
_BY_WORK: Final = {
    "layer_norm": "layer_norm",
    "rms_norm": "rms_norm",
    "batch_norm": "batch_norm",
    "group_norm": "group_norm",
    "softmax": "softmax",
    "relu": "relu relu_",
    "silu": "silu silu_",
    "elu": "elu",
    "softplus": "softplus",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "add": "add add_ sub rsub",
    "multiply": "mul_ div div_ pow square neg reciprocal",
    "exp": "exp exp_ log sqrt rsqrt cos sin",
    "clamp": "clamp clamp_min clamp_max",
    "cumsum": "cumsum",
}
COUNTED |= {f"aten::{name}": elementwise(work) for work, names in _BY_WORK.items() for name in names.split()}
_REDUCTIONS: Final = {"mean": "mean", "sum": "sum", "norm": "linalg_vector_norm norm", "logsumexp": "logsumexp"}
COUNTED |= {f"aten::{name}": reduction(work) for work, names in _REDUCTIONS.items() for name in names.split()}
_CHOICES: Final = "argmax argmin amax amin max min maximum minimum"
COUNTED |= {f"aten::{name}": choice for name in _CHOICES.split()}
_MOVES: Final = (
    "cat constant_pad_nd embedding flip gather index index_select pad repeat repeat_interleave roll stack "
    "take_along_dim tile"
)
COUNTED |= {f"aten::{name}": moved for name in _MOVES.split()}
_WRITES: Final = "index_copy index_copy_ index_put scatter slice_scatter"
COUNTED |= {f"aten::{name}": scattered for name in _WRITES.split()}

# Viewing, shaping and masking data, and making constants: nothing by convention. fvcore's own list is not used, for it
# hides arithmetic (max, clamp) among them.
FREE: Final[frozenset[str]] = frozenset(
    "aten::" + name
    for name in re.split(
        r"\s+",
        """Int ScalarImplicit alias arange bitwise_and bitwise_not bitwise_or broadcast_tensors chunk clone contiguous
        copy_ detach diagonal dropout empty eq expand expand_as eye fill_ flatten full full_like ge gt le lift_fresh
        logical_and logical_not logical_or lt mT masked_fill masked_fill_ movedim narrow ne new_empty new_full new_ones
        new_zeros numpy_T ones ones_like permute rand randn reshape select size slice split split_with_sizes squeeze
        swapaxes t tensor to transpose tril triu type_as unbind unflatten unfold unsqueeze view view_as where zeros
        zeros_like any""",
    )
)
