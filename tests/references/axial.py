"""Axial attention (Ho et al. 2019, §3): full attention along one axis of a grid."""

from __future__ import annotations

from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, spots, thirds

# A row runs along the last axis.
FROM_THE_END = {"row": 1, "column": 2, "depth": 3}


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Two tokens meet where all their coordinates but one are the same; all axes are added."""
    rank = len(place.sides)
    several = options.axis == "all"
    names = list(FROM_THE_END)[:rank] if several else [options.axis]
    return sum(
        along(options, place, getattr(weights, name) if several else weights.inner, rank - FROM_THE_END[name], x)
        for name in names
    )


def along(options: Options, place: Place, weights: Weights, axis: int, x: Tensor) -> Tensor:
    stands = spots(place.sides)

    def reads(n: int, m: int) -> bool:
        query, key = stands[n], stands[m]
        same_line = all(query[other] == key[other] for other in range(len(query)) if other != axis)
        return same_line and (key[axis] <= query[axis] or not options.causal)

    return linear(weights.out, attend(*thirds(weights.qkv, x), options.heads, reads))
