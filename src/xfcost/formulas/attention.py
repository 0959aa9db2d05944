"""The attention core softmax(QKᵀ/√d_k + bias)V, eager or fused, alone and between projections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import linear, matmul, precomputed_in_decode
from xfcost.ledger.accounts import Cached
from xfcost.ledger.attention_core import AttentionCore
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
    other_entries: Number = 0,
    prefix: str = "",
    label: str = "",
) -> Iterator[Operation]:
    """softmax(QKᵀ/√d_k + bias)V on `groups` groups of `queries` × `keys` tokens, h heads, h·d_k = `inner`.

    Values are as wide as keys, or `values` in all heads together. A key and value head `shared` by several query heads
    costs the same MACs, and is read once for all of them.

        scale          G·n·inner multiplications, where scores are `scaled`
        scores         G·n·m·inner MACs, G·h·n·m entries
        softmax        G·h·n·m elements, as many entries beside the scores; training saves these
        weighted_sum   G·n·m·values MACs

    Vaswani et al. 2017, equation 1. Fused, the same work is one row (`attention`) that saves one log-sum-exp per query
    and head in place of the matrix (Dao et al. 2022, §3.1); its backward pass recomputes the scores, a fifth product
    beside the four gradients (algorithm 4). Masking costs 0 FLOPs, and writes another matrix unless `mask_in_place`.
    Other matrices of `other_entries` (position scores) are alive meanwhile.

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
        other_entries=other_entries,
        statistics=groups * heads * queries,
        add=entries * FLOPS_PER_ELEMENT["add"] if biased else 0,
        softmax=entries * FLOPS_PER_ELEMENT["softmax"],
        pairs=pairs,
        masked=None if mask_in_place else matrix(entries, entries + other_entries),
        mixing={"mixing": mixing, "reads": reads, "reads_tokens": keys, "heads": heads},
        core=AttentionCore(groups * heads // shared, queries * shared, keys, inner // heads, value_inner // heads),
    )
    rows = [_fused_core(parts)] if fused else _eager_core(parts, scaled=scaled, biased=biased, masked=masked)
    for row in rows:
        if prefix or label:
            title, symbol = f"{row.title} ({label})" if label else row.title, None if prefix else row.symbol
            row = msgspec.structs.replace(row, path=prefix + row.path, title=title, symbol=symbol)  # noqa: PLW2901
        yield row


def cross_attention(  # noqa: PLR0913 - one formula, in its letters
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
    raw_input: Literal["queries", "memory", "neither"] = "queries",
    prefix: str = "",
    label: str = "",
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
    suffix = f" ({label})" if label else ""
    value_inner = inner if values is None else values
    q = linear(f"{prefix}q", f"Q projection{suffix}", queries, width, inner, bias=bias)
    kv = linear(f"{prefix}kv", f"K, V projections{suffix}", keys, memory_width, inner + value_inner, bias=bias)
    yield msgspec.structs.replace(q, once=learned, takes_input=True if raw_input == "queries" else None)
    cached = Cached(keys * (inner + value_inner))
    cache_row = Operation(path=f"{prefix}cache", title="Cached keys and values of the memory", cache=cached)
    yield precomputed_in_decode(
        msgspec.structs.replace(kv, takes_input=True if raw_input == "memory" else None), cache_row
    )
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
        label=label,
    )
    if output:
        yield linear(f"{prefix}out", f"Output projection W_O{suffix}", queries, value_inner, width, bias=bias)


class _CoreParts(NamedTuple):
    scores: Number
    weighted_sum: Number
    scale: Number
    entries: Number
    other_entries: Number
    statistics: Number
    add: Number
    softmax: Number
    pairs: Number
    masked: Matrix | None
    """The masked scores."""
    mixing: dict[str, Any]
    core: AttentionCore


def _fused_core(parts: _CoreParts) -> Operation:
    return Operation(
        path="attention",
        title="Fused attention softmax(QKᵀ)V",
        macs=parts.scores + parts.weighted_sum,
        flops=2 * (parts.scores + parts.weighted_sum) + parts.scale + parts.add + parts.softmax,
        fused=True,
        backward_macs=3 * parts.scores + 2 * parts.weighted_sum,
        attention_entries=parts.statistics,
        matrix=Matrix(0, parts.other_entries, statistics=parts.statistics),
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
    scores_matrix, later_matrix = (
        matrix(parts.entries, parts.other_entries),
        matrix(parts.entries, parts.entries + parts.other_entries),
    )
    score_facts = {
        "attention_entries": parts.entries,
        "matrix": scores_matrix,
        "pairs": parts.pairs,
        "core": parts.core,
    }
    yield matmul("scores", "Attention scores QKᵀ", parts.scores, symbol="QKᵀ", **score_facts, **content)
    if biased:
        yield Operation(
            path="add_bias",
            title="Add position bias",
            flops=parts.add,
            matrix=later_matrix,
            symbol="+ bias",
            **parts.mixing,
        )
    if masked:
        yield Operation(path="mask", title="Mask", matrix=parts.masked, symbol="mask", **parts.mixing)
    cache_row = later_matrix._replace(kept=parts.entries)
    yield Operation(path="softmax", title="Softmax", flops=parts.softmax, matrix=cache_row, symbol="softmax", **content)
    yield matmul("weighted_sum", "Weighted sum AV", parts.weighted_sum, symbol="AV", **content)
