"""Where tokens stand: a grid of any rank, and the extra tokens ([CLS], distillation) that come on top."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from math import isqrt, prod
from typing import NamedTuple

from xfcost.ledger.errors import UsageError
from xfcost.ledger.number import Number
from xfcost.ledger.units import number_text

# Grids more oblong than this are not what `--N n` means.
WIDEST_ASPECT = 2
# The longest input of any kind: 2³² tokens, or an image of 2¹⁶ by 2¹⁶.
MOST_TOKENS = 2**32


class Grid(NamedTuple):
    """N = product of `sides` tokens in raster order, after `extra` tokens that stand outside the grid.

    Token numbers: 0 … extra-1 are the extra tokens, extra … extra+N-1 the grid in raster order.
    """

    sides: tuple[Number, ...]
    extra: Number = 0

    @property
    def tokens(self) -> Number:
        """Tokens on the grid, without the extra ones."""
        return prod(self.sides)

    @property
    def total(self) -> Number:
        """All tokens, the extra ones included."""
        return self.tokens + self.extra

    def shape_text(self) -> str:
        """`784 (28×28) + 1`, `1024`."""
        text = f"{self.tokens:,}"
        if len(self.sides) > 1:
            text += f" ({sides_text(self.sides)})"
        return text + (f" + {self.extra}" if self.extra else "")


def sides_text(sides: Iterable[Number]) -> str:
    """`28×28`."""
    return "×".join(str(side) for side in sides)


def near_square(tokens: int) -> tuple[int, int] | None:
    """The sides of the grid of `tokens` nearest to a square, or None where it would be over 2:1."""
    narrowest = isqrt((tokens - 1) // WIDEST_ASPECT) + 1  # the least side with side · 2·side >= tokens
    for short in range(isqrt(tokens), narrowest - 1, -1):
        if tokens % short == 0:
            return short, tokens // short
    return None


def check_tokens(tokens: int) -> None:
    """Refuse an N that no input has.

    Raises:
        UsageError: `tokens` is below 1 or above `MOST_TOKENS`.
    """
    if tokens < 1:
        raise UsageError(f"--N {number_text(tokens)}: expected at least 1 token; try --N 1 or --N 784")
    if tokens > MOST_TOKENS:
        raise UsageError(f"--N {number_text(tokens)}: expected at most {MOST_TOKENS:,} tokens (2³²)")


def _possible(start: int, step: int) -> Iterator[tuple[int, tuple[int, int]]]:
    tokens = start + step
    while 0 < tokens <= MOST_TOKENS:
        if sides := near_square(tokens):
            yield tokens, sides
        tokens += step


def image_sides(tokens: int) -> tuple[int, int]:
    """The sides for `--N tokens` on an image.

    Raises:
        UsageError: `tokens` is below 1 or makes no grid up to 2:1; the message names the neighbours that do.
    """
    check_tokens(tokens)
    sides = near_square(tokens)
    if sides:
        return sides
    raise UsageError(
        f"--N {tokens}: no image grid between 1:1 and {WIDEST_ASPECT}:1 has as many; the nearest that do: "
        f"{nearest_shapes(tokens)}"
    )


def video_sides(tokens: int, steps: int) -> tuple[int, int, int]:
    """The sides for `--N tokens` on a video whose grid has `steps` time steps: the frames stay, the images change.

    Raises:
        UsageError: `tokens` is below 1, or isn't `steps` grids up to 2:1; the message names the neighbours that are.
    """
    check_tokens(tokens)
    sides = near_square(tokens // steps) if tokens % steps == 0 else None
    if sides:
        return steps, *sides
    raise UsageError(
        f"--N {tokens}: the frames make {steps} time steps, and no image grid between 1:1 and {WIDEST_ASPECT}:1 "
        f"{steps} times over has as many tokens; the nearest that do: {_nearest_videos(tokens, steps)}"
    )


def _nearest_videos(tokens: int, steps: int) -> str:
    below = next(((n, sides) for n in range(tokens // steps, 0, -1) if (sides := near_square(n))), None)
    above = next((n, sides) for n in count(tokens // steps + 1) if (sides := near_square(n)))
    found = [one for one in (below, above) if one]
    return " or ".join(f"{n * steps} ({steps}×{sides_text(sides)})" for n, sides in found)


def nearest_shapes(tokens: int) -> str:
    """The numbers of tokens next to `tokens` that make a grid, with their grids: `195 (13×15) or 198 (11×18)`."""
    # 2³² tokens are 65536×65536: there is always a neighbour above
    nearest = [next(_possible(tokens, step)) for step in (-1, 1)]
    return " or ".join(f"{number} ({short}×{long})" for number, (short, long) in nearest)
