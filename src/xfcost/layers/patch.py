"""Patch embedding: an image is cut into patches, each projected to one token."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Annotated, ClassVar

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import ComponentError, Grid, Letter, NormKind, Number, Operation, Place, Side, Sources
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.layer import Embed, Takes
from xfcost.formulas.lettering import patches_in_letters
from xfcost.formulas.rows import linear, norm
from xfcost.ledger.errors import divisors_text
from xfcost.ledger.grid import sides_text


class Patch(Embed, frozen=True, kw_only=True, tag="patch"):
    """A P×P convolution of stride P (Dosovitskiy et al. 2021, §3.1; Liu et al. 2021, §3.1).

    projection   N·(P²·C)·d MACs, P²·C·d + d parameters, N = (H/P)·(W/P) tokens, C channels
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image",)

    size: Annotated[Side, Letter("P", least=2)]
    """Side P of a patch, in pixels."""
    norm: NormKind = "none"
    """Norm after the projection."""
    bias: bool = True
    """Whether the projection has a bias."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(side * self.size for side in sides)

    def check(self, place: Place) -> None:
        bad = [side for side in place.grid.sides if side % self.size]
        if bad:
            below = [max(side // self.size, 1) * self.size for side in place.grid.sides]
            above = [ceil_div(side, self.size) * self.size for side in place.grid.sides]
            images = " or ".join(dict.fromkeys((sides_text(below), sides_text(above))))
            raise ComponentError(
                "size",
                f"{self.size} does not divide the image {sides_text(place.grid.sides)}; it could be "
                f"{divisors_text(gcd(*place.grid.sides))}, or the image {images}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(tuple(side // self.size for side in place.grid.sides)), place.out_dim

    def in_letters(self, place: Place) -> tuple[Patch, Place]:
        """N patches of side P."""
        component, lettered_place = super().in_letters(place)
        patches = patches_in_letters(self.size, self.size, place.grid, self.out(place)[0])
        return component, msgspec.structs.replace(lettered_place, grid=patches.grid)

    def sources(self, place: Place) -> Sources:
        rank = len(place.grid.sides)
        return Sources(kernel=Kernel((self.size,) * rank, (self.size,) * rank, (0,) * rank))

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = self.out(place)
        yield linear("projection", "Patch projection", grid.tokens, self.size**2 * place.dim, d, bias=self.bias)
        yield from norm(self.norm, "norm", grid.tokens, d)
