"""At which N a module is counted, for polynomials in N."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

Kind = Literal["lengths", "squares", "multiples"]

# Points from the own one, in places: twice as far, the next one, and others of mixed remainders.
_LARGER: Final = ((2, 0), (1, 1), (3, 1), (5, 3), (2, 3), (1, 2), (4, 0), (3, 0), (5, 0), (6, 0))
_SMALLER: Final = ((1, 2, 0), (1, 1, -1), (3, 4, 0), (1, 2, 1), (1, 1, -2), (2, 3, 0), (1, 3, 0), (7, 8, 0))

# One fit each finds every period that divides one of these.
_PERIODS: Final = (24, 840)
# Of the sides of images: patches and strides of convolutions.
_OF_IMAGES: Final = (32, 96, 28)
_MOST_WINDOWS: Final = 4
# The largest N tried, and the same in terms of the own N: memory of masks and tables that are made as a model runs.
_MOST_TOKENS: Final = 2**14
_MOST_TIMES: Final = 32


class Axis(NamedTuple):
    """The N that a module can have: every one, squares, or multiples of its own."""

    kind: Kind
    tokens: int
    grain: int = 1
    """Of squares: what their sides are multiples of."""
    images: bool = False
    """Are they images, of so many pixels?"""

    @property
    def own(self) -> int:
        """The point of the own N."""
        return {"lengths": self.tokens, "squares": math.isqrt(self.tokens) // self.grain, "multiples": 1}[self.kind]

    def size(self, point: int) -> int:
        """N at a point."""
        return {"lengths": point, "squares": (point * self.grain) ** 2, "multiples": point * self.tokens}[self.kind]

    def larger(self) -> list[int]:
        """Larger N."""
        return self._sizes(self.own * times + more for times, more in _LARGER)

    def smaller(self) -> list[int]:
        """Smaller N, which a limit of the model allows, or a window that is not full yet."""
        return self._sizes(self.own * times // parts + more for times, parts, more in _SMALLER)

    def periods(self, numbers: Sequence[int]) -> list[int]:
        """Periods to try, each for all its divisors; `numbers` are those in shapes, the likeliest first."""
        if self.kind == "squares":
            windows = [math.isqrt(number) for number in numbers if 1 < number == math.isqrt(number) ** 2][
                :_MOST_WINDOWS
            ]
            usual = (*_OF_IMAGES, *_PERIODS) if self.images else _PERIODS
            return list(dict.fromkeys((*usual, *windows, *(8 * side for side in windows))))
        known = math.lcm(*_PERIODS)
        windows = [number for number in numbers if number > 1 and known % number]
        return list(dict.fromkeys((*_PERIODS, *windows[:_MOST_WINDOWS])))

    def alike(self, period: int, points: int) -> list[int]:
        """The next N with the same remainder, as far as shapes stay small."""
        most = max(_MOST_TOKENS, _MOST_TIMES * self.tokens)
        sizes = (self.size(self.own + place * period) for place in range(1, points + 1))
        return [size for size in sizes if size <= most]

    def other(self, period: int, remainder: int, points: int) -> list[int]:
        """N of another remainder, from the own one on."""
        first = self.own + (remainder - self.own) % period
        return [self.size(first + place * period) for place in range(points)]

    def _sizes(self, points: Iterator[int]) -> list[int]:
        return [self.size(point) for point in dict.fromkeys(points) if point > 0 and point != self.own]


# What the sides of images are multiples of: patches, and strides of convolutions; the finest first.
_GRAINS: Final = (1, 2, 4, 8, 16, 32, 7, 14, 28)


def image_axis(pixels: int, runs: Callable[[int], bool]) -> Axis:
    """The square images near one of so many `pixels` at which the module `runs`."""
    side = math.isqrt(pixels)
    grains = (grain for grain in _GRAINS if side % grain == 0 and runs((side + grain) ** 2))
    return Axis("squares", pixels, next(grains, side), images=True)


def axis_of(tokens: int, runs: Callable[[int], bool]) -> Axis:
    """The N near `tokens` at which the module `runs`."""
    if runs(tokens + 1):
        return Axis("lengths", tokens)
    side = math.isqrt(tokens)
    if side * side == tokens and runs((side + 1) ** 2):
        return Axis("squares", tokens)
    return Axis("lengths", tokens) if tokens > 1 and runs(tokens - 1) else Axis("multiples", tokens)
