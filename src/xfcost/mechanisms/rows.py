"""Rows that many pages have: a linear map, a norm, a product, an element-wise step, sorting, moving data.

Each is one formula in one place; pages say which rows they have and how large. `attention.py` has the attention core.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xfcost.arithmetic import Number, ceil_log2
from xfcost.conventions import FLOPS_PER_ELEMENT
from xfcost.ledger import Operation
from xfcost.mechanisms.base import NormKind


def linear(path: str, title: str, tokens: Number, inputs: Number, outputs: Number, *, bias: bool = True) -> Operation:
    """y = xW + b per token: N·d_in·d_out MACs, d_in·d_out (+ d_out) parameters."""
    macs = tokens * inputs * outputs
    return Operation(
        path=path,
        title=title,
        params=inputs * outputs + (outputs if bias else 0),
        macs=macs,
        flops=2 * macs + (tokens * outputs * FLOPS_PER_ELEMENT["add"] if bias else 0),
    )


def product(path: str, title: str, macs: Number, **more: Any) -> Operation:
    """A product of two tensors (matmul): `macs` multiply-accumulates, no parameters of its own.

    `more` says what else is true of the row: `mixing`, `reads`, `content_dependent`, `attention_entries`, …
    """
    return Operation(path=path, title=title, macs=macs, flops=2 * macs, **more)


def norm(kind: NormKind, path: str, tokens: Number, width: Number) -> Iterator[Operation]:
    """The normalisation `kind`, if any: layer norm with scale and shift has 2d parameters (Ba et al. 2016)."""
    if kind == "layer_norm":
        flops = tokens * width * FLOPS_PER_ELEMENT["layer_norm"]
        yield Operation(path=path, title="Layer norm", params=2 * width, flops=flops)


def elementwise(path: str, title: str, work: str, elements: Number, **more: Any) -> Operation:
    """`work` (a row of the conventions' table) on `elements` elements."""
    return Operation(path=path, title=title, flops=elements * FLOPS_PER_ELEMENT[work], **more)


def sort(path: str, title: str, lists: Number, length: Number, **more: Any) -> Operation:
    """`lists` lists of `length` elements sorted (or their top k chosen): ⌈log₂ length⌉ comparisons per element."""
    return Operation(path=path, title=title, comparisons=lists * length * ceil_log2(length), **more)


def choose(path: str, title: str, elements: Number, **more: Any) -> Operation:
    """Argmax or maximum: one comparison per element that enters."""
    return Operation(path=path, title=title, comparisons=elements, **more)


def move(path: str, title: str, moved: Number = 0, **more: Any) -> Operation:
    """Data that only moves: no parameters, 0 FLOPs by convention, yet named, so that nothing stays hidden.

    `moved` elements are written, where they are gathered, rolled, padded or concatenated and not merely viewed.
    """
    return Operation(path=path, title=title, moved=moved, **more)
