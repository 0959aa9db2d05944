"""MobileViT's attention (Mehta and Rastegari 2022, §3.1): among the tokens at one place of all P×P patches."""

from __future__ import annotations

from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, spots, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    stands = spots(place.sides)

    def reads(n: int, m: int) -> bool:
        return all((a - b) % options.patch == 0 for a, b in zip(stands[n], stands[m], strict=True))

    return linear(weights.out, attend(*thirds(weights.qkv, x), options.heads, reads))
