"""Biases of attention scores by how far two tokens of a window stand apart: a learned table, or a network's answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final

import msgspec

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import elementwise, gradients, linear, move, power
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation

# Width of the network that answers for a continuous bias, in every public implementation of Swin V2.
HIDDEN: Final = 512


def offsets(window: Sequence[Number]) -> Number:
    """How many offsets there are between two tokens of a window: ∏(2W-1)."""
    return prod(tuple(2 * side - 1 for side in window))


def _local(window: Sequence[Number]) -> dict[str, Any]:
    return {"mixing": "local", "reads": power("W", len(window)), "reads_tokens": prod(window)}


def relative_table(window: Sequence[Number], heads: Number, *, bound: bool) -> Operation:
    """A learned number per offset and head, ∏(2W-1)·h, looked up for all T² pairs (Liu et al. 2021, equation 4).

    It is `bound` to the input's size where that clips the window.
    """
    return Operation(
        path="relative_bias",
        title="Relative position bias",
        params=offsets(window) * heads,
        moved=prod(window) ** 2 * heads,
        bound=bound,
        once=True,
        symbol="",
        **_local(window),
    )


def log_cpb(window: Sequence[Number], heads: Number) -> Iterator[Operation]:
    """Log-spaced continuous position bias: a network answers for every offset (Liu et al. 2022, equations 3 and 4).

    R = ∏(2W-1) offsets along r axes, each as sign(x)·log₂(1 + |x|)/log₂8 of x = 8·offset/(W - 1), are put through

        cpb_fc1      R·r·512 MACs, 512·r + 512 parameters
        cpb_act      R·512 elements, ReLU
        cpb_fc2      R·512·h MACs, 512·h parameters, no bias
        cpb_sigmoid  R·h elements: 16·sigmoid(x)
        cpb_lookup   h·T² elements, for all pairs

    All of it is work on weights alone, once for a batch. The parameters know no window. The public implementations take
    the sigmoid of the h·T² answers looked up; here it is that of the R·h, the same numbers.
    """
    rows = offsets(window)
    answers = rows * heads
    first = linear("cpb_fc1", "Position bias network, first layer", rows, len(window), HIDDEN)
    second = linear("cpb_fc2", "Position bias network, second layer", rows, HIDDEN, heads, bias=False)
    bounded = answers * (FLOPS_PER_ELEMENT["sigmoid"] + FLOPS_PER_ELEMENT["multiply"])
    yield gradients(msgspec.structs.replace(first, once=True), 1)  # the offsets are fixed
    yield elementwise("cpb_act", "Position bias network, ReLU", "relu", rows * HIDDEN, once=True, symbol="")
    yield msgspec.structs.replace(second, once=True)
    yield Operation(path="cpb_sigmoid", title="Position bias 16·sigmoid", flops=bounded, once=True, symbol="")
    yield move(
        "cpb_lookup", "Relative position bias", prod(window) ** 2 * heads, once=True, symbol="", **_local(window)
    )
