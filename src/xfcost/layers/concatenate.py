"""What an earlier stage gave, beside what comes in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place, Sources
from xfcost.formulas.layer import Enter
from xfcost.formulas.rows import move
from xfcost.formulas.sources import itself
from xfcost.ledger.tensors import INPUT, MEMORY, OUTPUT, Tensor, Tensors


class Concatenate(Enter, frozen=True, kw_only=True, tag="concatenate"):
    """[y, x]: the output y of an earlier stage, of the same grid, before x (Mehta and Rastegari 2022, figure 1b).

    Widths d' and d become d' + d: N·(d' + d) elements are written. A convolution behind it fuses the two.
    """

    stage: Annotated[int, msgspec.Meta(ge=1, le=2**16)]
    """Number of the earlier stage whose output is concatenated; 1 is the first."""

    @property
    def reads_stage(self) -> int | None:
        return self.stage

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("stage", f"{self.stage} is not an earlier stage")
        if place.memory != place.grid:
            raise ComponentError(
                "stage",
                f"stage {self.stage} leaves {place.memory.shape_text()} tokens, and the input has "
                f"{place.grid.shape_text()}; expected a stage with the same grid",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.memory_dim + place.dim

    def sources(self, place: Place) -> Sources:
        return Sources(memory=itself)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, width = place.grid.total, place.memory_dim + place.dim
        both = (Tensor(MEMORY, (n, place.memory_dim)), Tensor(INPUT, (n, place.dim)))
        tensors = Tensors(both, (Tensor(OUTPUT, (n, width)),))
        yield move("concatenate", f"Beside the output of stage {self.stage}", n * width, tensors=tensors)
