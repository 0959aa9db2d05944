"""The attention core softmax(QKᵀ/√d_k + bias)V, eager or fused, alone and between projections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import linear, of_memory, product
from xfcost.ledger.accounts import Cached
from xfcost.ledger.core import Core
from xfcost.ledger.matrices import Matrix, matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Mixing, Operation


def attention_core(  # noqa: PLR0913 - one formula, in its letters
    *,
    queries: Number,
    keys: Number,
    groups: Number = 1,
    heads: Number,
    inner: Number,
    values: Number | None = None,
    mixing: Mixing,
    reads: str,
    pairs: Number,
    fused: bool,
    biased: bool = False,
    masked: bool = False,
    mask_in_place: bool = False,
    scaled: bool = True,
    shared: Number = 1,
    beside: Number = 0,
    prefix: str = "",
    what: str = "",
) -> Iterator[Operation]:
    """softmax(QKᵀ/√d_k + bias)V on `groups` groups of `queries` × `keys` tokens, h heads, h·d_k = `inner`.

    Values are as wide as keys, or `values` in all heads together. Where a head of keys and values is `shared` by
    several of queries, that changes no product; it is read once for all of them.

        scale          G·n·inner multiplications, where scores are `scaled`
        scores         G·n·m·inner MACs, G·h·n·m entries
        softmax        G·h·n·m elements, as many entries beside those of the scores; training keeps these
        weighted_sum   G·n·m·values MACs

    Vaswani et al. 2017, equation 1. Fused, the same work is one row (`attention`) that keeps one log-sum-exp per query
    and head in place of the matrix (Dao et al. 2022, §3.1); its backward pass works the scores out again, a fifth
    product beside the four gradients (algorithm 4). Masking is a choice, 0 FLOPs, in both, and makes another matrix
    unless it is done `mask_in_place`. All the while other matrices are alive, with `beside` entries (position scores).

    A mechanism with several cores tells them apart by `prefix` (`local_` gives `local_scores`, as the
    module's core stands under the name `local`) and by `what` (in brackets after every title).
    """
    entries = groups * heads * queries * keys
    value_inner = inner if values is None else values
    parts = _CoreParts(
        scores=groups * queries * keys * inner,
        weighted_sum=groups * queries * keys * value_inner,
        scale=groups * queries * inner * FLOPS_PER_ELEMENT["multiply"] if scaled else 0,
        entries=entries,
        beside=beside,
        statistics=groups * heads * queries,
        add=entries * FLOPS_PER_ELEMENT["add"] if biased else 0,
        softmax=entries * FLOPS_PER_ELEMENT["softmax"],
        pairs=pairs,
        masked=None if mask_in_place else matrix(entries, entries + beside),
        mixing={"mixing": mixing, "reads": reads, "reads_tokens": keys, "heads": heads},
        core=Core(groups * heads // shared, queries * shared, keys, inner // heads, value_inner // heads),
    )
    rows = [_fused_core(parts)] if fused else _eager_core(parts, scaled=scaled, biased=biased, masked=masked)
    for row in rows:
        if prefix or what:
            title, symbol = f"{row.title} ({what})" if what else row.title, None if prefix else row.symbol
            row = msgspec.structs.replace(row, path=prefix + row.path, title=title, symbol=symbol)  # noqa: PLW2901
        yield row


def reading(  # noqa: PLR0913 - one formula, in its letters
    *,
    queries: Number,
    width: Number,
    keys: Number,
    memory_width: Number,
    inner: Number,
    values: Number = None,
    heads: Number,
    bias: bool,
    reads: str,
    fused: bool,
    output: bool = True,
    scaled: bool = True,
    learned: bool = False,
    of_input: Literal["queries", "memory", "neither"] = "queries",
    prefix: str = "",
    what: str = "",
) -> Iterator[Operation]:
    """MH(X, Y, Y): n `queries` of `width` d read m other tokens of `memory_width` d' (Vaswani et al. 2017, §3.2.2).

    Values are as wide as keys, or `values` in all heads together.

        q       n·d·inner MACs; on weights alone, once for all samples, where the queries are `learned` (seeds, points)
        kv      m·d'·(inner + values) MACs
        core    n·m·(inner + values) MACs
        out     n·values·d MACs, where there is an `output` projection

    `prefix` and `what` tell several of them apart, as in the core. `of_input` says which of the two is what comes into
    the component, as it is.
    """
    note = f" ({what})" if what else ""
    value_inner = inner if values is None else values
    q = linear(f"{prefix}q", f"Q projection{note}", queries, width, inner, bias=bias)
    kv = linear(f"{prefix}kv", f"K, V projections{note}", keys, memory_width, inner + value_inner, bias=bias)
    yield msgspec.structs.replace(q, once=learned, takes_input=True if of_input == "queries" else None)
    cached = Cached(keys * (inner + value_inner))
    kept = Operation(path=f"{prefix}cache", title="Cached keys and values of the memory", cache=cached)
    yield of_memory(msgspec.structs.replace(kv, takes_input=True if of_input == "memory" else None), kept)
    yield from attention_core(
        queries=queries,
        keys=keys,
        heads=heads,
        inner=inner,
        values=value_inner,
        mixing="global",
        reads=reads,
        pairs=queries * keys,
        fused=fused,
        scaled=scaled,
        prefix=prefix,
        what=what,
    )
    if output:
        yield linear(f"{prefix}out", f"Output projection W_O{note}", queries, value_inner, width, bias=bias)


class _CoreParts(NamedTuple):
    scores: Number
    weighted_sum: Number
    scale: Number
    entries: Number
    beside: Number
    statistics: Number
    add: Number
    softmax: Number
    pairs: Number
    masked: Matrix | None
    """What the mask gives."""
    mixing: dict[str, Any]
    core: Core


def _fused_core(parts: _CoreParts) -> Operation:
    return Operation(
        path="attention",
        title="Fused attention softmax(QKᵀ)V",
        macs=parts.scores + parts.weighted_sum,
        flops=2 * (parts.scores + parts.weighted_sum) + parts.scale + parts.add + parts.softmax,
        fused=True,
        backward_macs=3 * parts.scores + 2 * parts.weighted_sum,
        attention_entries=parts.statistics,
        matrix=Matrix(0, parts.beside, statistics=parts.statistics),
        pairs=parts.pairs,
        core=parts.core,
        content_dependent=True,
        symbol="fused QKᵀ, softmax, AV",
        **parts.mixing,
    )


def _eager_core(parts: _CoreParts, *, scaled: bool, biased: bool, masked: bool) -> Iterator[Operation]:
    content = parts.mixing | {"content_dependent": True}
    if scaled:
        yield Operation(path="scale", title="Scale queries 1/√d_k", flops=parts.scale, symbol="")
    first, next_ = matrix(parts.entries, parts.beside), matrix(parts.entries, parts.entries + parts.beside)
    whole = {"attention_entries": parts.entries, "matrix": first, "pairs": parts.pairs, "core": parts.core}
    yield product("scores", "Attention scores QKᵀ", parts.scores, symbol="QKᵀ", **whole, **content)
    if biased:
        yield Operation(
            path="add_bias", title="Add position bias", flops=parts.add, matrix=next_, symbol="+ bias", **parts.mixing
        )
    if masked:
        yield Operation(path="mask", title="Mask", matrix=parts.masked, symbol="mask", **parts.mixing)
    kept = next_._replace(kept=parts.entries)
    yield Operation(path="softmax", title="Softmax", flops=parts.softmax, matrix=kept, symbol="softmax", **content)
    yield product("weighted_sum", "Weighted sum AV", parts.weighted_sum, symbol="AV", **content)
