"""fvcore handles of data movement: gathers, scatters, padding, look-ups, and sums into places."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Final

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.tracing.graph import Counts, Handle, Value, given, is_float, shape
from xfcost.torch_models.tracing.operation_names import ADDED_WRITES, MOVES, WRITES


def moved(inputs: list[Value], outputs: list[Value]) -> Counts:
    """The number of floating-point elements written."""
    return Counter(moved=prod(shape(outputs[0])) if is_float(outputs[0]) else 0)


def scattered(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Writing into a tensor moves the elements of the source; whole numbers cost nothing."""
    floats = [value for value in inputs if is_float(value)]
    return Counter(moved=prod(shape(floats[-1])) if floats else 0)


def scatter_add(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Adding into a tensor: each source element is written and added."""
    counts = scattered(inputs, outputs)
    return counts + Counter(flops=counts["moved"] * FLOPS_PER_ELEMENT["add"])


def index_put(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Writing or adding at indices."""
    accumulates = len(inputs) > 3 and inputs[3].toIValue() is True  # noqa: PLR2004
    return (scatter_add if accumulates else scattered)(inputs[:3], outputs)


def placed(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Unpooling: each input element is written at its index."""
    return Counter(moved=prod(shape(inputs[0])))


# `mode` of an embedding bag
_SUM, _MEAN, _MAX = range(3)


def embedding_bag(inputs: list[Value], outputs: list[Value]) -> Counts:
    """Rows of a table (V, d), reduced per bag by a (weighted) sum, a mean or a maximum."""
    elements = prod(shape(inputs[1])) * shape(inputs[0])[-1]
    mode = inputs[4].toIValue()
    if mode == _MAX:
        return Counter(moved=elements, comparisons=elements)
    weighted = FLOPS_PER_ELEMENT["multiply"] if given(inputs[6]) else 0
    work = FLOPS_PER_ELEMENT["mean" if mode == _MEAN else "sum"] + weighted
    return Counter(moved=elements, flops=elements * work)


def renormed(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(table (V, d), indices, …): the length of every row that is looked up."""
    return Counter(flops=prod(shape(inputs[1])) * shape(inputs[0])[-1] * FLOPS_PER_ELEMENT["norm"])


MOVEMENTS: Final[dict[str, Handle]] = {
    **{f"aten::{name}": moved for name in MOVES.split()},
    **{f"aten::{name}": scattered for name in WRITES.split()},
    **{f"aten::{name}": scatter_add for name in ADDED_WRITES.split()},
    **{f"aten::{name}": index_put for name in ["index_put", "index_put_", "_index_put_impl_"]},
    **{f"aten::{name}": placed for name in ["max_unpool2d", "max_unpool3d"]},
    "aten::embedding_bag": embedding_bag,
    "aten::embedding_renorm_": renormed,
}
