"""Relative position biases inside a window: a learned table, or a small network (Swin V2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final

import msgspec

from xfcost.formulas.rows import elementwise, letter_power, linear, move, with_gradient_operands
from xfcost.formulas.tensors import copied, reading
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import OUTPUT, Tensor, Tensors

# Hidden width of the bias network in every public implementation of Swin V2.
HIDDEN: Final = 512


def offset_count(window: Sequence[Number]) -> Number:
    """Number of offsets between two tokens of a window: ∏(2W-1)."""
    return prod(tuple(2 * side - 1 for side in window))


def _local(window: Sequence[Number]) -> dict[str, Any]:
    return {"mixing": "local", "reads": letter_power("W", len(window)), "reads_tokens": prod(window)}


def relative_bias_table(window: Sequence[Number], heads: Number, *, bound: bool) -> Operation:
    """A learned number per offset and head, ∏(2W-1)·h, looked up for all T² pairs (Liu et al. 2021, equation 4).

    `bound`: does the input's size clip the window, and so the table?
    """
    return Operation(
        path="relative_bias",
        title="Relative position bias",
        params=offset_count(window) * heads,
        moved=prod(window) ** 2 * heads,
        bound=bound,
        once=True,
        symbol="",
        tensors=Tensors((), (Tensor(OUTPUT, (heads, prod(window), prod(window))),), beside=True),
        **_local(window),
    )


def log_cpb_rows(window: Sequence[Number], heads: Number) -> Iterator[Operation]:
    """Log-spaced continuous position bias, computed by a network (Liu et al. 2022, equations 3 and 4).

    R = ∏(2W-1) offsets along r axes, each sign(x)·log₂(1 + |x|)/log₂8 of x = 8·offset/(W - 1):

        cpb_fc1      R·r·512 MACs, 512·r + 512 parameters
        cpb_act      R·512 elements, ReLU
        cpb_fc2      R·512·h MACs, 512·h parameters, no bias
        cpb_sigmoid  R·h elements: 16·sigmoid(x)
        cpb_lookup   h·T² elements, for all pairs

    It is computed once per batch, and its parameters do not depend on the window. Public implementations take the
    sigmoid of all h·T² looked-up biases; this takes that of R·h, with the same result.
    """
    rows = offset_count(window)
    entries = rows * heads
    first = linear("cpb_fc1", "Position bias network, first layer", rows, len(window), HIDDEN)
    second = linear("cpb_fc2", "Position bias network, second layer", rows, HIDDEN, heads, bias=False)
    offsets = Tensor("offsets", (rows, len(window)), once=True, held=True)
    given = Tensors((offsets,), (Tensor(OUTPUT, (rows, HIDDEN)),), beside=True)
    yield with_gradient_operands(msgspec.structs.replace(first, once=True, tensors=given), 1)  # the offsets are fixed
    once: dict[str, Any] = {"once": True, "symbol": ""}
    act = elementwise("cpb_act", "Position bias network, ReLU", "relu", rows * HIDDEN, **once)
    yield reading(act, "cpb_fc1", beside=True)
    yield reading(msgspec.structs.replace(second, once=True), "cpb_act", beside=True)
    inside = msgspec.structs.replace(copied((entries,), (entries,)), makes=(Tensor("sigmoid", (entries,)),))
    sigmoid = elementwise(
        "cpb_sigmoid", "Position bias 16·sigmoid", "sigmoid + multiply", entries, tensors=inside, **once
    )
    yield reading(sigmoid, "cpb_fc2", beside=True)
    tokens = prod(window)
    lookup = copied((entries,), (heads, tokens, tokens))
    row = move("cpb_lookup", "Relative position bias", tokens**2 * heads, tensors=lookup, **once, **_local(window))
    yield reading(row, "cpb_sigmoid", beside=True)
