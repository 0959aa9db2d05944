"""BigBird's block-sparse attention (Zaheer et al. 2020, §2 and appendix D)."""

from __future__ import annotations

from torch import Tensor

from references.plain import Options, Place, Weights, attend, everything, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Blocks of b: three neighbours, first and last, and r drawn at random (`options.drawn`, as they were drawn)."""
    tokens, b, r = place.total, options.block, options.random_blocks
    last = (tokens - 1) // b

    def reads(n: int, m: int) -> bool:
        query, key = n // b, m // b
        is_global = query in (0, last) or key in (0, last)
        return is_global or abs(query - key) <= 1 or key in options.drawn[query]

    few = tokens <= (5 + 2 * r) * b  # full attention, as in the public code
    if not few:
        for block in range(1, last):
            drawn = options.drawn[block]
            assert len(set(drawn)) == len(drawn) == r
            assert not set(drawn) & {0, block - 1, block, block + 1, last}
    parts = weights.inner
    return linear(parts.out, attend(*thirds(parts.qkv, x), options.heads, everything if few else reads))
