"""Tokens read at the given size, from those read at smaller ones."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Final

from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.token_axes import Axes, with_tokens

_ENOUGH: Final = 3
Seen = tuple[Fraction | None, int | None]
"""A size as a part of the given one, and the number there."""


def part_of(given: Given, small: Given, axes: Axes) -> Fraction | None:
    """The tokens of `small` over those of `given`; None where inputs differ in that."""
    counts = [
        [prod(tensor.shape[axis] for axis in own) for tensor, own in with_tokens(one, axes)] for one in (small, given)
    ]
    parts = {Fraction(few, many) for few, many in zip(*counts, strict=True) if many}
    return parts.pop() if len(parts) == 1 else None


def at_full_size(seen: Sequence[Seen]) -> int | None:
    """The number at the given size: looked at there, or on the line through two sizes that a third one confirms."""
    own = next((number for part, number in seen if part == 1), None)
    if own is not None:
        return own
    points = [(part, number) for part, number in seen if part is not None and number is not None]
    if len(points) < max(_ENOUGH, len(seen)):
        return None
    (first, start), (second, end), *others = points
    slope = (end - start) / (second - first)
    value = start + slope * (1 - first)
    confirmed = all(start + slope * (part - first) == number for part, number in others)
    return int(value) if confirmed and value.denominator == 1 else None
