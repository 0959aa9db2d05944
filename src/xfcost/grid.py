"""Where tokens stand: a grid of any rank, and the extra tokens ([CLS], distillation) that come on top."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod
from typing import NamedTuple

from xfcost.arithmetic import Number
from xfcost.errors import UsageError

# Grids more oblong than this are not what `--N n` means.
WIDEST_ASPECT = 2


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
            text += " (" + "×".join(str(side) for side in self.sides) + ")"
        return text + (f" + {self.extra}" if self.extra else "")


def near_square(tokens: int) -> tuple[int, int] | None:
    """The sides of the grid of `tokens` nearest to a square, or None where it would be over 2:1."""
    for short in range(isqrt(tokens), 0, -1):
        if tokens % short == 0:
            long = tokens // short
            return (short, long) if long <= WIDEST_ASPECT * short else None
    return None


def _possible(start: int, step: int) -> Iterator[int]:
    tokens = start + step
    while tokens > 0:
        if near_square(tokens):
            yield tokens
        tokens += step


def image_sides(tokens: int) -> tuple[int, int]:
    """The sides for `--N tokens` on an image.

    Raises:
        UsageError: `tokens` is below 1 or makes no grid up to 2:1; the message names the neighbours that do.
    """
    sides = near_square(tokens) if tokens > 0 else None
    if sides:
        return sides
    if tokens < 1:
        raise UsageError(f"--N {tokens}: expected at least 1 token; try --N 1 or --N 784")
    below, above = next(_possible(tokens, -1)), next(_possible(tokens, 1))
    shapes = " or ".join(f"{n} ({near_square(n)[0]}×{near_square(n)[1]})" for n in (below, above))  # type: ignore[index]
    raise UsageError(
        f"--N {tokens}: {tokens} tokens make no image grid between 1:1 and {WIDEST_ASPECT}:1; the nearest that do: {shapes}"
    )
