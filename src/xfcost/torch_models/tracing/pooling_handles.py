"""fvcore handles of pooling, sorting and selection."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Final

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.tracing.graph import Counts, Handle, Value, counts, shape, whole_numbers
from xfcost.torch_models.tracing.operation_names import CHOICES


def average_pool(inputs: list[Value], outputs: list[Value]) -> Counts:
    """A mean per window: the kernel's elements per output element, padding included."""
    return counts(0, prod(shape(outputs[0])) * prod(whole_numbers(inputs[1])) * FLOPS_PER_ELEMENT["mean"])


def max_pool(inputs: list[Value], outputs: list[Value]) -> Counts:
    """A maximum per window: one comparison per element of the window."""
    return Counter(comparisons=prod(shape(outputs[0])) * prod(whole_numbers(inputs[1])))


def adaptive_average_pool(rank: int) -> Handle:
    """A mean per window along `rank` axes."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return counts(0, _entering(rank, inputs, outputs) * FLOPS_PER_ELEMENT["mean"])

    return handle


def adaptive_max_pool(rank: int) -> Handle:
    """A maximum per window along `rank` axes."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return Counter(comparisons=_entering(rank, inputs, outputs))

    return handle


def _entering(rank: int, inputs: list[Value], outputs: list[Value]) -> int:
    """Elements of all windows: from n to p, window i covers ⌊i·n/p⌋ to ⌈(i+1)·n/p⌉; windows may overlap."""
    before, after = shape(inputs[0]), shape(outputs[0])
    entering = prod(after[:-rank])
    for n, p in zip(before[-rank:], after[-rank:], strict=True):
        entering *= sum(-((i + 1) * n // -p) - i * n // p for i in range(p))
    return entering


def sort(inputs: list[Value], outputs: list[Value]) -> Counts:
    """⌈log₂ n⌉ comparisons per element of lists of n, for a full sort or the top k."""
    sizes = shape(inputs[0])
    return Counter(comparisons=prod(sizes) * ceil_log2(sizes[_axis(inputs, outputs)])) if sizes else Counter()


def _axis(inputs: list[Value], outputs: list[Value]) -> int:
    """The sorted axis: `dim` is the first integer that may be negative; by default the last axis."""
    position = 2 if "topk" in outputs[0].node().kind() else 1
    given = inputs[position].toIValue() if len(inputs) > position else -1
    if isinstance(given, bool):  # sort(x, stable, dim), argsort(x, stable, dim)
        given = inputs[position + 1].toIValue()
    return -1 if given is None else int(given)


def choice(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Argmax or maximum: one comparison per input element; of two tensors, per output element."""
    two_tensors = len(inputs) == 2 and inputs[1].type().kind() == "TensorType"  # noqa: PLR2004
    return Counter(comparisons=prod(shape(outputs[0] if two_tensors else inputs[0])))


POOLING: Final[dict[str, Handle]] = {
    **{f"aten::avg_pool{rank}d": average_pool for rank in (1, 2, 3)},
    **{f"aten::max_pool{rank}d": max_pool for rank in (1, 2, 3)},
    **{f"aten::max_pool{rank}d_with_indices": max_pool for rank in (1, 2, 3)},
    **{f"aten::adaptive_avg_pool{rank}d": adaptive_average_pool(rank) for rank in (1, 2, 3)},
    **{f"aten::adaptive_max_pool{rank}d": adaptive_max_pool(rank) for rank in (1, 2, 3)},
    **{f"aten::{name}": sort for name in ["sort", "argsort", "topk"]},
    **{f"aten::{name}": choice for name in CHOICES.split()},
}
