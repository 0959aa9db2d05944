"""Patch merging: disjoint groups of 2×2 tokens become one wider token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place, Sources
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.layer import Enter
from xfcost.formulas.notes import PaddingNote
from xfcost.formulas.rows import linear, move, norm
from xfcost.formulas.tensors import copied
from xfcost.ledger.grid import sides_text


class PatchMerging(Enter, frozen=True, kw_only=True, tag="patch_merging"):
    """2×2 neighbours are concatenated (4d), normalised and reduced to the stage's width (Liu et al. 2021, §3.1).

        norm        ⌈N/4⌉·4d elements, 8d parameters
        reduction   ⌈N/4⌉·4d·d' MACs, 4d·d' parameters, no bias

    With `norm: post` (Swin V2; Liu et al. 2022) they are reduced, then normalised: ⌈N/4⌉·d' elements, 2d' parameters.

    Odd sides are padded by one, as in the public implementation. Groups are disjoint and become new tokens: per-token.
    """

    norm: Literal["pre", "post"] = "pre"
    """Whether the norm stands before the reduction (`pre`, Swin) or after it (`post`, Swin V2)."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(2 * side for side in sides)

    def check(self, place: Place) -> None:
        if len(place.grid.sides) != 2 or place.grid.special:  # noqa: PLR2004 - height and width
            raise ComponentError(
                "kind", f"'patch_merging' needs a 2-D grid without special tokens, not {place.grid.shape_text()}"
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(tuple(ceil_div(side, 2) for side in place.grid.sides)), place.out_dim

    def sources(self, place: Place) -> Sources:
        rank = len(place.grid.sides)
        return Sources(kernel=Kernel((2,) * rank, (2,) * rank, (0,) * rank))

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = self.out(place)
        padded = 4 * grid.tokens * place.dim if any(side % 2 for side in place.grid.sides) else 0
        gathered = copied((place.grid.tokens, place.dim), (grid.tokens, 4 * place.dim))
        yield move("gather", "Gather 2×2 neighbours", padded, tensors=gathered)
        normed = [*norm("layer_norm", "norm", grid.tokens, d if self.norm == "post" else 4 * place.dim)]
        reduction = linear("reduction", "Patch merging reduction", grid.tokens, 4 * place.dim, d, bias=False)
        yield from [reduction, *normed] if self.norm == "post" else [*normed, reduction]

    def notes(self, place: Place) -> Iterator[str]:
        if any(side % 2 for side in place.grid.sides):
            sides, merged = sides_text(place.grid.sides), sides_text(self.out(place)[0].sides)
            yield PaddingNote(f"odd grid {sides} padded by one row or column to merge into {merged}")
