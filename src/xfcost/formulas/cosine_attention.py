"""Scaled cosine attention: normalised queries and keys, and a learned temperature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xfcost.formulas.rows import elementwise, l2_normalize
from xfcost.formulas.tensors import product
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Tensor, Tensors

# The normalised keys; the queries have the row's own name.
COSINE_KEYS: Final = "cosine keys"


def scaled_cosine(tokens: Number, heads: Number, inner: Number, of: tuple[str, str]) -> Iterator[Operation]:
    """Scores cos(q, k)/τ of n tokens' queries and keys, h heads, h·d_k = `inner` (Liu et al. 2022, equation 2).

        cosine_normalize    2·n·inner elements: queries and keys normalised to length 1
        cosine_temperature  h learned logarithms of 1/τ, no more than log 100, and their exponentials; once
        cosine_scale        n·inner multiplications: queries by their head's 1/τ

    The public implementations multiply the scores, h·n·T of them in windows of T tokens; queries multiplied before the
    product give the same numbers for n·inner multiplications, eager and fused.

    Queries and keys are parts of the tensors `of`.
    """
    both = (tokens, inner)
    lengths = Tensor("lengths", (2, 2, tokens, heads))  # of queries and of keys, before and after the clamp
    reads, writes = (tuple(Tensor(name, both) for name in names) for names in (of, (OUTPUT, COSINE_KEYS)))
    normalised = Tensors(reads, writes, tuple(Saved(name) for name in of), (lengths,))
    yield l2_normalize(
        "cosine_normalize",
        "Queries and keys of length 1",
        2 * tokens * heads,
        inner // heads,
        symbol="q, k of length 1",
        tensors=normalised,
    )
    learned = Tensors((), (Tensor(OUTPUT, (heads,), once=True),), (Saved(OUTPUT),), beside=True)
    once = {"params": heads, "once": True, "symbol": "", "tensors": learned}
    yield elementwise("cosine_temperature", "Temperature 1/τ", "clamp + exp", heads, **once)
    scaled = product(Tensor(BEFORE, both), Tensor("cosine_temperature", (heads,)), both)
    yield elementwise("cosine_scale", "Scale queries 1/τ", "multiply", tokens * inner, symbol="q/τ", tensors=scaled)
