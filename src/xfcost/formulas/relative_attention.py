"""The core of relative attention: scores by content and by distance (Transformer-XL, Funnel Transformer)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from xfcost.formulas.attention import attention_core
from xfcost.formulas.rows import elementwise, linear, matmul, move, with_gradient_operands
from xfcost.ledger.matrices import matrix
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


def relative_core(  # noqa: PLR0913 - one formula, in its letters
    *,
    queries: Number,
    keys: Number,
    encodings: Number,
    dim: Number,
    heads: Number,
    inner: Number,
    reads: str,
    pairs: Number,
    fused: bool,
    masked: bool = False,
    share: str | None = None,
    terms: tuple[Operation, ...] = (),
    by_distance: bool = False,
) -> Iterator[Operation]:
    """softmax(((Q+u)Kᵀ + shift((Q+v)(R·W_R)ᵀ))/√d_k)V, R one sinusoidal encoding per distance, T = `encodings`.

        r                T·d·inner MACs, once for the whole batch
        position_scores  n·T·inner MACs, h·n·T entries; the shift is a view of them
        scores           n·m·inner MACs, h·n·m entries
        weighted_sum     n·m·inner MACs

    Dai et al. 2019, §3.3. `terms` are further rows on the position scores, which give a matrix of queries × keys.
    Scores `by_distance` have more columns than keys: publications don't count them as attention entries, but they take
    memory. Fused, the position scores are the kernel's bias.
    """
    mixing: dict[str, Any] = {"mixing": "global", "reads": reads, "reads_tokens": keys}
    project = linear("r", "Projection W_R of relative positions", encodings, dim, inner, bias=False)
    yield with_gradient_operands(msgspec.structs.replace(project, once=True), 1)  # sinusoids are fixed
    position_entries, entries = heads * queries * encodings, heads * queries * keys
    position_matrix = matrix(position_entries, kept=fused and not masked and not terms)  # a fused kernel keeps its bias
    score_facts = {
        "heads": heads,
        "attention_entries": 0 if by_distance else position_entries,
        "matrix": position_matrix,
    }
    yield from _position_scores(queries, encodings, inner, share, mixing, score_facts)
    yield from terms
    other_entries = entries if terms else position_entries
    if masked and fused:
        yield Operation(
            path="mask", title="Mask", matrix=matrix(entries, other_entries, kept=True), symbol="mask", **mixing
        )
        other_entries += entries
    yield from attention_core(
        queries=queries,
        keys=keys,
        heads=heads,
        inner=inner,
        mixing="global",
        reads=reads,
        pairs=pairs,
        fused=fused,
        biased=True,
        masked=masked,
        other_entries=other_entries,
    )


def _position_scores(
    queries: Number,
    encodings: Number,
    inner: Number,
    share: str | None,
    mixing: dict[str, Any],
    score_facts: dict[str, Any],
) -> Iterator[Operation]:
    """Q+u, Q+v, and (Q+v)(R·W_R)ᵀ brought to the places of its keys."""
    bias = {"params": 0 if share else inner, "shared": share}
    yield elementwise("content_bias", "Queries + u, for the content", "add", queries * inner, **bias)
    yield elementwise("position_bias", "Queries + v, for the positions", "add", queries * inner, **bias)
    yield elementwise("position_scale", "Scale queries 1/√d_k, for the positions", "multiply", queries * inner)
    yield matmul(
        "position_scores",
        "Position scores QRᵀ",
        queries * encodings * inner,
        content_dependent=True,
        **mixing,
        **score_facts,
    )
    yield move("position_shift", "Relative shift", **mixing)
