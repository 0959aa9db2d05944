"""fvcore handles of element-wise work, reductions, norms and resampling, by the written convention."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Final

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.tracing.graph import (
    Counts,
    Handle,
    Value,
    broadcast,
    counts,
    given,
    is_complex,
    is_float,
    not_counted,
    shape,
)
from xfcost.torch_models.tracing.operation_names import NEIGHBOURS, PER_INPUT, PER_OUTPUT

# Complex numbers: a sum adds two parts; the convention has no other complex work.
_OF_BOTH_PARTS: Final = ("add", "sum", "mean", "cumsum")


def elementwise(*works: str) -> Handle:
    """These works per element of the output."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return sum((_work(work, inputs, outputs, outputs[0]) for work in works), counts(0))

    return handle


def reduction(*works: str) -> Handle:
    """These works per input element."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return sum((_work(work, inputs, outputs, inputs[0]) for work in works), counts(0))

    return handle


def _work(work: str, inputs: list[Value], outputs: list[Value], counted: Value) -> Counts:
    """`work` per element of `counted`; none for whole numbers."""
    elements = prod(shape(counted))
    if any(is_complex(value) for value in (*inputs, *outputs)):
        if work == "multiply":
            return counts(0, elements * FLOPS_PER_ELEMENT["complex_multiply"])
        if work not in _OF_BOTH_PARTS:
            return not_counted(f"{outputs[0].node().kind()} of complex numbers")
        return counts(0, elements * 2 * FLOPS_PER_ELEMENT[work])
    return counts(0, elements * FLOPS_PER_ELEMENT[work] if is_float(counted) else 0)


def gelu(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Exact, or with the tanh approximation."""
    form = "gelu_tanh" if len(inputs) > 1 and inputs[1].toIValue() == "tanh" else "gelu"
    return elementwise(form)(inputs, outputs)


def clamp(inputs: list[Value], outputs: list[Value]) -> Counts:
    """One comparison per given bound."""
    bounds = sum(given(bound) for bound in inputs[1:3])
    return counts(0, bounds * elementwise("clamp")(inputs, outputs)["flops"])


def batch_norm(inputs: list[Value], outputs: list[Value]) -> Counts:
    """With running statistics two FLOPs per element; a batch's own mean and variance cost more."""
    batch_statistics = inputs[5].toIValue() is True
    return elementwise("group_norm" if batch_statistics else "batch_norm")(inputs, outputs)


def pairs(work: str) -> Handle:
    """`work` per pair of elements of two tensors, broadcast."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return counts(0, prod(broadcast(shape(inputs[0]), shape(inputs[1]))) * FLOPS_PER_ELEMENT[work])

    return handle


def alpha_dropout(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Training scales and shifts the remaining elements, to keep their mean and variance."""
    return elementwise("affine")(inputs, outputs) if inputs[2].toIValue() is True else counts(0)


def interpolated(neighbours: int) -> Handle:
    """A weighted sum of a fixed number of input elements per output element."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        return counts(0, prod(shape(outputs[0])) * neighbours * FLOPS_PER_ELEMENT["interpolate"])

    return handle


# `mode` of grid_sample
_NEAREST, _BICUBIC = 1, 2


def grid_sampler(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(x, points (…, rank), mode, …): neighbours' weights, once per point, and a weighted sum per output element."""
    elements, points, mode = prod(shape(outputs[0])), shape(inputs[1]), inputs[2].toIValue()
    if mode == _NEAREST:
        return Counter(moved=elements)
    neighbours = (4 if mode == _BICUBIC else 2) ** points[-1]
    per_element, per_point = FLOPS_PER_ELEMENT["interpolate"], FLOPS_PER_ELEMENT["sampling_weight"]
    return counts(0, neighbours * (elements * per_element + prod(points[:-1]) * per_point))


ELEMENTWISE: Final[dict[str, Handle]] = {
    **{f"aten::{name}": elementwise(*works) for works, names in PER_OUTPUT.items() for name in names.split()},
    **{f"aten::{name}": reduction(*works) for works, names in PER_INPUT.items() for name in names.split()},
    **{f"aten::upsample_{name}": interpolated(neighbours) for neighbours, name in NEIGHBOURS.items()},
    **{f"aten::{name}": alpha_dropout for name in ["alpha_dropout", "alpha_dropout_", "feature_alpha_dropout"]},
    **{f"aten::{name}": clamp for name in ["clamp", "clamp_"]},
    "aten::grid_sampler": grid_sampler,
    "aten::grid_sampler_2d": grid_sampler,
    "aten::grid_sampler_3d": grid_sampler,
    "aten::gelu": gelu,
    "aten::gelu_": gelu,
    "aten::batch_norm": batch_norm,
    "aten::instance_norm": batch_norm,
    "aten::cosine_similarity": pairs("cosine_similarity"),
    "aten::pairwise_distance": pairs("distance"),
}
