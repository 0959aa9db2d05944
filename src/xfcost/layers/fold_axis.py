"""One axis of the grid becomes width: a spectrogram's frequencies stand side by side in one token per time step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from xfcost.formulas.component import Place, check_no_special_tokens
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import move
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation

# Longer than any padding, so that no convolution before it must refuse it.
_ANY: Final = 2**20


class FoldAxis(Embed, frozen=True, kw_only=True, tag="fold_axis"):
    """The last axis of the grid, X long, goes into the width: Y×X tokens of width d become Y of width X·d.

    A view: in raster order the X tokens of a row stand beside each other already. Convolutional subsampling ends so
    (Gulati et al. 2020, §2): the frequencies that are left of a time step become one vector. N then counts along the
    axes that stay, and at another N the folded axis is as long as the spec's own input makes it.
    """

    folds: ClassVar[bool] = True

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The folded axis is the input's own (`Embed.folds`); a length that any stem can give stands for it here."""
        return (*sides, _ANY)

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "'fold_axis' folds a grid")
        if len(place.grid.sides) == 1:
            raise ComponentError("kind", f"the {place.grid.total} tokens are a sequence already; leave it out")

    def out(self, place: Place) -> tuple[Grid, Number]:
        *sides, folded = place.grid.sides
        return Grid(tuple(sides)), folded * place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        yield move("fold", "Fold the last axis into the width")
