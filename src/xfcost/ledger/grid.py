"""The layout of tokens: a grid of any rank, and special tokens ([CLS], distillation)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import isqrt, prod
from typing import NamedTuple

from xfcost.ledger.errors import UsageError
from xfcost.ledger.units import Number, number_text

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
    levels: tuple[tuple[int, ...], ...] = ()
    """Of a sequence of several feature maps, one after the other, each in raster order: the sides of every map."""

    @property
    def tokens(self) -> Number:
        """Tokens of the grid, without special tokens."""
        return prod(self.sides)

    @property
    def total(self) -> Number:
        """All tokens, with special tokens."""
        return self.tokens + self.special

    @property
    def map_sides(self) -> tuple[Number, ...]:
        """The sides of the grid, or of its largest map."""
        return self.levels[0] if self.levels else self.sides

    def resized(self, sides: tuple[int, ...], special: int) -> Grid:
        """A grid with these sides, or as many maps as here, the largest with these sides."""
        return (maps_grid((sides[0], sides[1]), len(self.levels)) if self.levels else Grid(sides))._replace(
            special=special
        )

    def shape_text(self) -> str:
        """`784 (28×28) + 1`, `1024`, `106 (8×10, 4×5, 2×3)`."""
        text = f"{self.tokens:,}"
        if self.levels or len(self.sides) > 1:
            text += f" ({', '.join(map(sides_text, self.levels or (self.sides,)))})"
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


def map_levels(sides: tuple[int, int], count: int) -> tuple[tuple[int, int], ...]:
    """The sides of `count` feature maps, each half as long as those of the one before, rounded up."""
    height, width = sides
    return tuple((-(-height // 2**level), -(-width // 2**level)) for level in range(count))


def maps_grid(sides: tuple[int, int], count: int) -> Grid:
    """The tokens of `count` feature maps, the largest with these sides: one map is a grid, several are a sequence."""
    levels = map_levels(sides, count)
    return Grid(sides) if count == 1 else Grid((sum(map(prod, levels)),), levels=levels)


def largest_map(tokens: int, count: int) -> tuple[int, int]:
    """The sides, nearest to a square, of the largest of `count` feature maps that have `tokens` together.

    Raises:
        UsageError: `tokens` is below 1, or no maps up to 2:1 have as many; the message lists the nearest that do.
    """
    check_tokens(tokens)
    sides = _largest_map(tokens, count)
    if sides:
        return sides
    below = next((n for n in range(tokens - 1, 0, -1) if _largest_map(n, count)), None)
    above = next(n for n in itertools.count(tokens + 1) if _largest_map(n, count))
    nearest = " or ".join(str(n) for n in (below, above) if n)
    raise UsageError(
        f"--N {tokens}: no {count} feature maps between 1:1 and {WIDEST_ASPECT}:1 have as many tokens together; the "
        f"nearest that do: {nearest}"
    )


def _largest_map(tokens: int, count: int) -> tuple[int, int] | None:
    # rounding only adds tokens: w is at most what it would be without
    whole = Fraction(4 ** (count - 1), (4**count - 1) // 3)
    for short in range(isqrt(int(tokens * whole)), 0, -1):
        widest = WIDEST_ASPECT * short
        for long in range(min(int(tokens * whole / short), widest), short - 1, -1):
            here = sum(map(prod, map_levels((short, long), count)))
            if here == tokens:
                return short, long
            if here < tokens:
                if long == widest:
                    return None
                break
    return None


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
    above = next((n, sides) for n in itertools.count(tokens // steps + 1) if (sides := near_square(n)))
    neighbours = [neighbour for neighbour in (below, above) if neighbour]
    return " or ".join(f"{n * steps} ({steps}×{sides_text(sides)})" for n, sides in neighbours)


def nearest_shapes(tokens: int) -> str:
    """The nearest numbers of tokens that make a grid: `195 (13×15) or 198 (11×18)`."""
    # the largest number, 2³², is 65536×65536: there is always a grid above
    nearest = [next(_grids_from(tokens, step)) for step in (-1, 1)]
    return " or ".join(f"{number} ({short}×{long})" for number, (short, long) in nearest)
