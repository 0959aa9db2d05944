"""Along which axes of a module's output the positions lie, and the grid that they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Final

from xfcost.ledger.grid import Grid
from xfcost.torch_models.reach.influence import Output

# Special tokens before those of a square grid, at most.
_MOST_SPECIAL: Final = 4
_SEQUENCE, _PLANE = 3, 4


def position_axes(
    outputs: Sequence[Output], others: Sequence[Output], *, batched: bool = True
) -> list[tuple[int, ...]]:
    """Of each output its axes that are of another length at another size of the input.

    Where nothing is (`others` may be empty): those of (B, N, D), (B, C, H, W) or (B, H, W, C); of (N, D) without batch.
    """
    shapes = [tuple(one.value.shape) for one in outputs]
    other_shapes = [tuple(one.value.shape) for one in others]
    if [one.name for one in outputs] != [one.name for one in others]:
        return [_usual(shape, batched=batched) for shape in shapes]
    return [
        tuple(axis for axis in range(int(batched), len(shape)) if axis < len(other) and shape[axis] != other[axis])
        or _usual(shape, batched=batched)
        for shape, other in zip(shapes, other_shapes, strict=True)
    ]


def _usual(shape: tuple[int, ...], *, batched: bool) -> tuple[int, ...]:
    if not batched and len(shape) == _SEQUENCE - 1:
        return (0,)
    if len(shape) < _SEQUENCE:
        return ()
    if len(shape) == _SEQUENCE:
        return (1,)
    channels_last = len(shape) == _PLANE and shape[1] == shape[2] != shape[3]
    return (1, 2) if channels_last else tuple(range(2, len(shape)))


def grid_of(sides: tuple[int, ...], units: tuple[int, ...]) -> Grid:
    """The grid of an output's positions: a sequence that comes of a square is one, behind its special tokens."""
    if len(sides) == 1 < len(units) and len(set(units)) == 1:
        tokens = sides[0]
        for special in range(min(_MOST_SPECIAL, tokens)):
            side = isqrt(tokens - special)
            if side**2 == tokens - special and prod(units) % side == 0:
                return Grid((side, side), special)
    return Grid(sides or (1,))
