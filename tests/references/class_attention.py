"""Class attention (Touvron et al. 2021, §3): the class token asks, all tokens answer."""

from __future__ import annotations

from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """As if all tokens asked; then the first rows of it."""
    parts = [linear(leaf, x) for leaf in (weights.q, weights.k, weights.v)]
    return linear(weights.out, attend(*parts, options.heads))[:, : place.special]
