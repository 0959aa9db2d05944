"""Attention whose scores have a term for the distance of a query and a key, one sinusoidal encoding per distance.

B batch, N queries, M keys, T encodings, D width, I the width of H heads of K.
"""

from __future__ import annotations

from math import pi
from typing import Any

from xfcost.formulas.arithmetic import ceil_div, greater
from xfcost.formulas.component import Number
from xfcost.program.attention import split_heads
from xfcost.program.functions import multiplied, scores
from xfcost.program.leaves import Weight
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


def position_scores(  # noqa: PLR0913 - what the formula is made of
    t: Operations, q: Tensor, encodings: Tensor, *, keys: Number, heads: Number, reads: str, share: str | None = None,
    step: Number = 1, spare: Number = 0, by_distance: bool = False,
) -> Tensor:  # fmt: skip
    """shift((Q+v)(R·W_R)ᵀ/√d_k): (B, N, I), R (1, T, D) -> (B, H, N, M).

        r                T·d·inner MACs, once for the whole batch
        position_scores  n·T·inner MACs, h·n·T entries; the shift is a view of them

    Dai et al. 2019, §3.3. Each query's columns begin `step` before those of the previous query; the last query's begin
    at `spare`. Scores `by_distance` have more columns than there are keys: they are then no attention entries.
    """
    (queries, inner), distances = q.shape[1:], encodings.shape[1]
    facts: dict[str, Any] = {"mixing": "global", "reads": reads, "reads_tokens": keys}
    r = split_heads(t.linear("r", encodings, inner, bias=False), heads)
    q = with_vector(t, "position_bias", q, share, row=1)
    q = t.leaf("position_scale", multiplied, q, options={"factor": float(inner // heads) ** -0.5})
    x = t.leaf(
        "position_scores", scores, split_heads(q, heads), r, heads=heads, content_dependent=True,
        attention_entries=0 if by_distance else heads * queries * distances, matrix=True, **facts,
    )  # fmt: skip
    sizes = {"queries": queries, "keys": keys, "distances": distances, "step": step, "spare": spare}
    return t.leaf("position_shift", shifted, x, options=sizes, **facts)


def sinusoids(_: Any, row: Any, column: Any, *, first: int, width: int, spacing: int = 1) -> Any:
    """Of the distances first, first - spacing, …: (1, T, D), sines before cosines (Dai et al. 2019, §3.3)."""
    half = ceil_div(width, 2)
    return ((first - spacing * row) / 10000 ** (column % half * 2 / width) + column // half * (pi / 2)).sin()


def with_vector(t: Operations, name: str, q: Tensor, share: str | None = None, *, row: int = 0) -> Tensor:
    """The leaf `name` that adds a learned vector, a row of a table where layers share it: (B, N, I) -> (B, N, I)."""
    table = Weight((1 if share is None else 2, q.shape[-1]), shared=share)
    return t.leaf(name, with_row, q, weights=(table,), options={"row": 0 if share is None else row})


def with_row(t: Functions, x: Tensor, table: Tensor, *, row: int) -> Tensor:
    """x plus a row of a table."""
    return x + table.select(0, row)


def shifted(  # noqa: PLR0913 - sizes
    t: Functions, x: Tensor, *, queries: Number, keys: Number, distances: Number, step: Number, spare: Number
) -> Tensor:  # fmt: skip
    """Scores by distance to scores by key: (B, H, N, T) -> (B, H, N, M), a view of overlapping rows.

    Row i begins at i·T + spare + step·(N-1-i) of the flat matrix, T - step after the row before.
    """
    first = step * (queries - 1) + spare
    flat = x.flatten(-2).narrow(-1, first, queries * distances - first)
    return flat.unfold(-1, keys, greater(1, distances - step)).narrow(-2, 0, queries)
