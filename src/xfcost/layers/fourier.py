"""Fixed Fourier features of positions (Perceiver)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from xfcost.formulas.component import Grid, Letter, Number, Operation, Place, check_no_special_tokens
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import move
from xfcost.formulas.tensors import copied


class Fourier(Embed, frozen=True, kw_only=True, tag="fourier"):
    """[x, p, sin(π·f·p), cos(π·f·p)]: fixed Fourier features of the position p beside x (Jaegle et al. 2021, §3.2).

    Along each of the grid's r sides p runs from -1 to 1 and f takes `bands` values from 1 to half the side, equally
    spaced: C channels become C + r·(2·bands + 1). No parameters, no FLOPs: the features are constants.
    """

    bands: Annotated[int, msgspec.Meta(ge=1, le=2**12), Letter(None)] = 64
    """Number of frequencies along each axis."""

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "'fourier' encodes positions on a grid")

    def features(self, place: Place) -> int:
        """Number of added channels."""
        return len(place.grid.sides) * (2 * self.bands + 1)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.dim + self.features(place)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, width = self.out(place)
        reads, writes = (grid.tokens, place.dim), (grid.tokens, width)
        yield move("concatenate", "Fourier features", grid.tokens * width, tensors=copied(reads, writes))
