"""Scaled cosine attention: normalised queries and keys, and a learned temperature."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.rows import elementwise, l2_normalize
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


def scaled_cosine(tokens: Number, heads: Number, inner: Number) -> Iterator[Operation]:
    """Scores cos(q, k)/τ of n tokens' queries and keys, h heads, h·d_k = `inner` (Liu et al. 2022, equation 2).

        cosine_normalize    2·n·inner elements: queries and keys normalised to length 1
        cosine_temperature  h learned logarithms of 1/τ, no more than log 100, and their exponentials; once
        cosine_scale        n·inner multiplications: queries by their head's 1/τ

    The public implementations multiply the scores, h·n·T of them in windows of T tokens; queries multiplied before the
    product give the same numbers for n·inner multiplications, eager and fused.
    """
    yield l2_normalize(
        "cosine_normalize",
        "Queries and keys of length 1",
        2 * tokens * heads,
        inner // heads,
        symbol="q, k of length 1",
    )
    once = {"params": heads, "once": True, "symbol": ""}
    yield elementwise("cosine_temperature", "Temperature 1/τ", "clamp + exp", heads, **once)
    yield elementwise("cosine_scale", "Scale queries 1/τ", "multiply", tokens * inner, symbol="q/τ")
