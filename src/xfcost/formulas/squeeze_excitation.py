"""Squeeze-and-excitation inside residual blocks: the mean over all tokens becomes a gate for every channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from xfcost.formulas.arithmetic import rounded
from xfcost.formulas.component import ActKind, ComponentError, Grid, Number, Operation
from xfcost.formulas.receptive_field import pointwise_kernel
from xfcost.formulas.rows import convolution, elementwise
from xfcost.formulas.tensors import copied, product
from xfcost.ledger.tensors import BEFORE, Tensor

# Squeezed width over the width of the block's input.
Squeeze = Annotated[float, msgspec.Meta(gt=0, le=2**10)]


def squeezed_width(squeeze: float, width: Number) -> Number:
    """r·d, as a whole number."""
    return rounded(width, squeeze)


def check_squeeze(squeeze: float | None, width: int) -> None:
    """Raise ComponentError where `squeeze` leaves no channel."""
    if squeeze is not None and not squeezed_width(squeeze, width):
        raise ComponentError("squeeze", f"{squeeze:g} of the width {width} is no channel at all; try 0.25")


def squeeze_rows(grid: Grid, width: Number, squeezed: Number, act: ActKind, of: str) -> Iterator[Operation]:
    """Squeeze-and-excitation (Hu et al. 2018, §3): the mean over all tokens becomes a gate for each of their channels.

    squeeze_pool   N·w additions
    squeeze_conv1  w·w' MACs, whatever N is; squeeze_conv2 as many
    squeeze_act    the activation `act` between them
    squeeze_scale  N·w multiplications of the row `of` by the gate, which all tokens decide
    """
    shape, elements = (grid.tokens, width), grid.tokens * width
    per_sample: dict[str, Any] = {"outputs": 1, "kernel": pointwise_kernel(grid).sides}
    all_tokens: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": grid.tokens}
    tensors = copied(shape, (width,))
    yield elementwise("squeeze_pool", "Squeeze: mean over tokens", "mean", elements, tensors=tensors, **all_tokens)
    yield convolution("squeeze_conv1", "Squeeze", width=width, out_width=squeezed, **per_sample)
    yield elementwise("squeeze_act", "Activation", act, squeezed)
    yield convolution("squeeze_conv2", "Excitation", width=squeezed, out_width=width, **per_sample)
    yield elementwise("squeeze_gate", "Sigmoid of the gate", "sigmoid", width)
    all_tokens["content_dependent"] = True
    tensors = product(Tensor(of, shape), Tensor(BEFORE, (width,)), shape)
    yield elementwise(
        "squeeze_scale", "Scale channels by the gate", "multiply", elements, tensors=tensors, **all_tokens
    )
