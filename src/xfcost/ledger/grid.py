"""The layout of tokens: a grid of any rank, and special tokens ([CLS], distillation)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from math import isqrt, prod
from typing import NamedTuple

from xfcost.ledger.errors import UsageError
from xfcost.ledger.number import Number
from xfcost.ledger.units import number_text

# `--N n` accepts grids up to this aspect ratio.
WIDEST_ASPECT = 2
# The longest input of any kind: 2³² tokens, or an image of 2¹⁶ by 2¹⁶.
MOST_TOKENS = 2**32


class Grid(NamedTuple):
    """N = product of `sides` tokens, and `special` special tokens outside the grid.

    Token numbers: 0 … special-1 are the special tokens, special … special+N-1 the grid in raster order.
    """

    sides: tuple[Number, ...]
    special: Number = 0

    @property
    def tokens(self) -> Number:
        """Tokens of the grid, without special tokens."""
        return prod(self.sides)

    @property
    def total(self) -> Number:
        """All tokens, with special tokens."""
        return self.tokens + self.special

    def shape_text(self) -> str:
        """`784 (28×28) + 1`, `1024`."""
        text = f"{self.tokens:,}"
        if len(self.sides) > 1:
            text += f" ({sides_text(self.sides)})"
        return text + (f" + {self.special}" if self.special else "")


def sides_text(sides: Iterable[Number]) -> str:
    """`28×28`."""
    return "×".join(str(side) for side in sides)


def near_square(tokens: int) -> tuple[int, int] | None:
    """The sides of the grid of `tokens` nearest to a square, or None if all are beyond 2:1."""
    narrowest = isqrt((tokens - 1) // WIDEST_ASPECT) + 1  # the smallest side with side · 2·side >= tokens
    for short in range(isqrt(tokens), narrowest - 1, -1):
        if tokens % short == 0:
            return short, tokens // short
    return None


def check_tokens(tokens: int) -> None:
    """Refuse an N out of range.

    Raises:
        UsageError: `tokens` is below 1 or above `MOST_TOKENS`.
    """
    if tokens < 1:
        raise UsageError(f"--N {number_text(tokens)}: expected at least 1 token; try --N 1 or --N 784")
    if tokens > MOST_TOKENS:
        raise UsageError(f"--N {number_text(tokens)}: expected at most {MOST_TOKENS:,} tokens (2³²)")


def _grids_from(start: int, step: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """(tokens, sides) of all grids after `start`, upwards or downwards."""
    tokens = start + step
    while 0 < tokens <= MOST_TOKENS:
        if sides := near_square(tokens):
            yield tokens, sides
        tokens += step


def image_sides(tokens: int) -> tuple[int, int]:
    """The sides for `--N tokens` on an image.

    Raises:
        UsageError: `tokens` is below 1 or makes no grid up to 2:1; the message lists the nearest that do.
    """
    check_tokens(tokens)
    sides = near_square(tokens)
    if sides:
        return sides
    raise UsageError(
        f"--N {tokens}: no image grid between 1:1 and {WIDEST_ASPECT}:1 has as many tokens; the nearest that do: "
        f"{nearest_shapes(tokens)}"
    )


def video_sides(tokens: int, steps: int) -> tuple[int, int, int]:
    """The sides for `--N tokens` on a video of `steps` time steps: the number of frames is fixed, the images grow.

    Raises:
        UsageError: `tokens` is below 1, or isn't `steps` grids up to 2:1; the message lists the nearest that are.
    """
    check_tokens(tokens)
    sides = near_square(tokens // steps) if tokens % steps == 0 else None
    if sides:
        return steps, *sides
    raise UsageError(
        f"--N {tokens}: the frames make {steps} time steps, and no image grid between 1:1 and {WIDEST_ASPECT}:1 "
        f"{steps} times has as many tokens; the nearest that do: {_nearest_videos(tokens, steps)}"
    )


def _nearest_videos(tokens: int, steps: int) -> str:
    below = next(((n, sides) for n in range(tokens // steps, 0, -1) if (sides := near_square(n))), None)
    above = next((n, sides) for n in count(tokens // steps + 1) if (sides := near_square(n)))
    neighbours = [neighbour for neighbour in (below, above) if neighbour]
    return " or ".join(f"{n * steps} ({steps}×{sides_text(sides)})" for n, sides in neighbours)


def nearest_shapes(tokens: int) -> str:
    """The nearest numbers of tokens that make a grid: `195 (13×15) or 198 (11×18)`."""
    # the largest number, 2³², is 65536×65536: there is always a grid above
    nearest = [next(_grids_from(tokens, step)) for step in (-1, 1)]
    return " or ".join(f"{number} ({short}×{long})" for number, (short, long) in nearest)
