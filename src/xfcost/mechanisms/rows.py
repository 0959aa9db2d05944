"""Rows that many pages have: a linear map, a norm, an element-wise step, moving data, and the attention core.

Each is one formula in one place; pages say which rows they have and how large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from xfcost.arithmetic import Number
from xfcost.conventions import FLOPS_PER_ELEMENT
from xfcost.ledger import Mixing, Operation
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


def norm(kind: NormKind, path: str, tokens: Number, width: Number) -> Iterator[Operation]:
    """The normalisation `kind`, if any: layer norm with scale and shift has 2d parameters (Ba et al. 2016)."""
    if kind == "layer_norm":
        flops = tokens * width * FLOPS_PER_ELEMENT["layer_norm"]
        yield Operation(path=path, title="Layer norm", params=2 * width, flops=flops)


def elementwise(path: str, title: str, work: str, elements: Number) -> Operation:
    """`work` (a row of the conventions' table) on `elements` elements."""
    return Operation(path=path, title=title, flops=elements * FLOPS_PER_ELEMENT[work])


def move(path: str, title: str) -> Operation:
    """Data that only moves: no parameters, 0 FLOPs by convention, yet named, so that nothing stays hidden."""
    return Operation(path=path, title=title)


def attention_core(  # noqa: PLR0913 - one formula, in its letters
    *,
    queries: Number,
    keys: Number,
    groups: Number = 1,
    heads: Number,
    inner: Number,
    mixing: Mixing,
    reads: str,
    pairs: Number,
    fused: bool,
    biased: bool = False,
    masked: bool = False,
) -> Iterator[Operation]:
    """softmax(QKᵀ/√d_k + bias)V on `groups` groups of `queries` × `keys` tokens, h heads, h·d_k = `inner`.

        scale          G·n·inner multiplications
        scores         G·n·m·inner MACs, G·h·n·m entries kept
        softmax        G·h·n·m elements
        weighted_sum   G·n·m·inner MACs

    Vaswani et al. 2017, equation 1. Fused, the same work is one row (`attention`) that keeps one log-sum-exp per query
    and head in place of the matrix (Dao et al. 2022, §3.1). Masking is a choice, 0 FLOPs, in both.
    """
    entries = groups * heads * queries * keys
    parts = _CoreParts(
        product=groups * queries * keys * inner,
        scale=groups * queries * inner * FLOPS_PER_ELEMENT["multiply"],
        entries=entries,
        statistics=groups * heads * queries,
        add=entries * FLOPS_PER_ELEMENT["add"] if biased else 0,
        softmax=entries * FLOPS_PER_ELEMENT["softmax"],
        pairs=pairs,
        mixing={"mixing": mixing, "reads": reads, "reads_tokens": keys, "heads": heads},
    )
    if fused:
        yield _fused_core(parts)
    else:
        yield from _eager_core(parts, biased=biased, masked=masked)


class _CoreParts(NamedTuple):
    product: Number
    scale: Number
    entries: Number
    statistics: Number
    add: Number
    softmax: Number
    pairs: Number
    mixing: dict[str, Any]


def _fused_core(parts: _CoreParts) -> Operation:
    return Operation(
        path="attention",
        title="Fused attention softmax(QKᵀ)V",
        macs=2 * parts.product,
        flops=4 * parts.product + parts.scale + parts.add + parts.softmax,
        attention_entries=parts.statistics,
        pairs=parts.pairs,
        content_dependent=True,
        **parts.mixing,
    )


def _eager_core(parts: _CoreParts, *, biased: bool, masked: bool) -> Iterator[Operation]:
    product, mixing = {"macs": parts.product, "flops": 2 * parts.product}, parts.mixing
    content = mixing | {"content_dependent": True}
    yield Operation(path="scale", title="Scale queries 1/√d_k", flops=parts.scale)
    kept = {"attention_entries": parts.entries, "pairs": parts.pairs}
    yield Operation(path="scores", title="Attention scores QKᵀ", **kept, **product, **content)
    if biased:
        yield Operation(path="add_bias", title="Add position bias", flops=parts.add, **mixing)
    if masked:
        yield Operation(path="mask", title="Mask", **mixing)
    yield Operation(path="softmax", title="Softmax", flops=parts.softmax, **content)
    yield Operation(path="weighted_sum", title="Weighted sum AV", **product, **content)
