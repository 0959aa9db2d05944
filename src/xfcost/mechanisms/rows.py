"""Rows that many pages have: a linear map, a norm, an element-wise step, moving data, and the attention core.

Each is one formula in one place; pages say which rows they have and how large.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    product = groups * queries * keys * inner
    scale = groups * queries * inner * FLOPS_PER_ELEMENT["multiply"]
    softmax = entries * FLOPS_PER_ELEMENT["softmax"]
    shared = {"mixing": mixing, "content_dependent": True, "reads": reads, "reads_tokens": keys, "heads": heads}
    if fused:
        add = entries * FLOPS_PER_ELEMENT["add"] if biased else 0
        yield Operation(
            path="attention",
            title="Fused attention softmax(QKᵀ)V",
            macs=2 * product,
            flops=4 * product + scale + add + softmax,
            attention_entries=groups * heads * queries,
            pairs=pairs,
            **shared,
        )
        return
    yield Operation(path="scale", title="Scale queries 1/√d_k", flops=scale)
    yield Operation(
        path="scores",
        title="Attention scores QKᵀ",
        macs=product,
        flops=2 * product,
        attention_entries=entries,
        pairs=pairs,
        **shared,
    )
    if biased:
        add = entries * FLOPS_PER_ELEMENT["add"]
        yield Operation(
            path="add_bias", title="Add position bias", flops=add, **(shared | {"content_dependent": False})
        )
    if masked:
        yield Operation(path="mask", title="Mask", **(shared | {"content_dependent": False}))
    yield Operation(path="softmax", title="Softmax", flops=softmax, **shared)
    yield Operation(path="weighted_sum", title="Weighted sum AV", macs=product, flops=2 * product, **shared)
