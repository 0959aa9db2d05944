"""The grid's last axis becomes width: a spectrogram's frequencies are concatenated to one token per time step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place, Sources, check_no_special_tokens
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import move
from xfcost.ledger.tensors import BEFORE, OUTPUT, Tensor, Tensors

# Longer than any padding, so that no convolution before it refuses it.
_ANY: Final = 2**20


class FoldAxis(Embed, frozen=True, kw_only=True, tag="fold_axis"):
    """The last axis of the grid, X long, goes into the width: Y×X tokens of width d become Y of width X·d.

    A view, since the X tokens of a row are adjacent in raster order; behind a convolution, whose output lies channel by
    channel, a copy. Convolutional subsampling ends with it (Gulati et al. 2020, §2). N then counts along the other
    axes; the folded axis keeps the length that the spec's input gives.
    """

    folds: ClassVar[bool] = True

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The folded axis has the input's own length (`Embed.folds`); any length that stems accept serves here."""
        return (*sides, _ANY)

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "'fold_axis' folds a grid")
        if len(place.grid.sides) == 1:
            raise ComponentError("kind", f"the {place.grid.total} tokens are a sequence already; leave it out")

    def out(self, place: Place) -> tuple[Grid, Number]:
        *sides, folded = place.grid.sides
        return Grid(tuple(sides)), folded * place.dim

    def sources(self, place: Place) -> Sources:
        side = place.grid.sides[-1]
        return Sources(lambda token: range(token * side, (token + 1) * side))

    def operations(self, place: Place) -> Iterator[Operation]:
        shape = (place.grid.total, place.dim)
        alone = place.grid.sides[-1] == 1 or place.dim == 1  # one of the two axes that become one
        folded = Tensor(OUTPUT, shape, view_of=BEFORE, token_by_token=not alone)
        tensors = Tensors((Tensor(BEFORE, shape),), (folded,))
        yield move("fold", "Fold the last axis into the width", tensors=tensors)
