"""VGG's classification head: a fixed grid of pooled tokens is flattened, and passes hidden layers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Annotated, Any

import msgspec

from xfcost.formulas.arithmetic import ceil_div, common_divisor
from xfcost.formulas.component import (
    ActKind,
    Letter,
    Observed,
    Operation,
    Place,
    Rows,
    Side,
    Width,
    check_no_special_tokens,
)
from xfcost.formulas.layer import Head
from xfcost.formulas.rows import elementwise, linear
from xfcost.formulas.tensors import adaptive_mean


class FlattenClassifier(Head, frozen=True, kw_only=True, tag="flatten_classifier"):
    """Tokens averaged to a P×P grid, flattened to P²·d numbers, hidden layers, classes (Simonyan and Zisserman 2015).

    pool    an adaptive mean: n tokens along a side are read n + P - gcd(n, P) times, for P that leave
    fc1     P²·d·H₁ MACs, P²·d·H₁ + H₁ parameters, whatever N is
    act1    H₁ elements; fc2, act2 and so on for every hidden layer, H₁·H₂ MACs
    linear  H·classes MACs, H of the last hidden layer

    VGG has P = 7, and two hidden layers of 4096 with ReLU. The pool changes nothing where the grid is P×P already, as
    of a 224×224 image; it is the public code's, for other sizes.
    """

    pooled: Annotated[Side, Letter(None)]
    """Side P of the grid that the tokens are averaged to, along every axis."""
    hidden: Annotated[list[Width], msgspec.Meta(min_length=1, max_length=2**8)]
    """Widths H of the hidden layers, in order."""
    act: ActKind = "relu"
    """Activation function behind each hidden layer."""
    classes: Annotated[Rows, Letter("K")] = 1000
    """Number of classes K."""

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "a grid is pooled and flattened")

    def pooled_sides(self, place: Place) -> tuple[int, ...]:
        """The sides of the pooled grid."""
        return (self.pooled,) * len(place.grid.sides)

    def observed(self, place: Place) -> Observed:
        return Observed(whole=self.pooled)

    def operations(self, place: Place) -> Iterator[Operation]:
        yield self._pool(place)
        width = prod(self.pooled_sides(place)) * place.dim
        for number, hidden in enumerate(self.hidden, 1):
            yield linear(f"fc{number}", "Hidden layer", 1, width, hidden)
            yield elementwise(f"act{number}", "Activation", self.act, hidden)
            width = hidden
        yield linear("linear", "Classifier", 1, width, self.classes)

    def _pool(self, place: Place) -> Operation:
        """Windows of sides that P divides are disjoint, and make new tokens; others share tokens."""
        sides = place.grid.sides
        read = [side + self.pooled - common_divisor(side, self.pooled) for side in sides]
        shared: dict[str, Any] = {}
        if any(common_divisor(side, self.pooled) != self.pooled for side in sides):
            longest = prod(ceil_div(tokens, self.pooled) for tokens in read)
            shared = {"mixing": "global", "reads": "N/k", "reads_tokens": longest}
        tensors = adaptive_mean(sides, self.pooled_sides(place), place.dim)
        work = prod(read) * place.dim
        return elementwise("pool", "Adaptive average pool", "mean", work, tensors=tensors, **shared)
