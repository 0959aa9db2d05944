"""One place back along an axis of the grid: how a model that predicts pixels is kept from reading the one it predicts.

Ho et al. 2019, §4.2: the pixels are shifted right before the inner decoder, the outer decoder's output down a row.
iGPT (Chen et al. 2020) shifts its sequence behind a learned start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from xfcost.formulas.component import ComponentError, Operation, Place, Sources, single_token
from xfcost.formulas.grid_axes import Axis, before, check_shift
from xfcost.formulas.layer import Embed
from xfcost.formulas.rows import move
from xfcost.formulas.tensors import copied
from xfcost.ledger.accounts import Cached, WeightsRead


class Shift(Embed, frozen=True, kw_only=True, tag="shift"):
    """Every token takes its predecessor's place on the line along `axis`; the last token of a line is dropped.

    Along a row pixels move right, along a column down; along the one axis of a sequence it is the decoder's shift of
    its targets (Vaswani et al. 2017, §3.1). Zeros come first, or a learned vector, d parameters (iGPT's public code:
    its start of sequence). N·d elements are written.
    """

    axis: Axis
    """Axis along which tokens move by one place."""
    start: Literal["zeros", "learned"] = "zeros"
    """What stands in the first place: zeros, or a learned vector of d parameters."""

    def check(self, place: Place) -> None:
        check_shift("axis", self.axis, place.grid)

    def sources(self, place: Place) -> Sources:
        return Sources(lambda token: before(self.axis, place.grid, token))

    def operations(self, place: Place) -> Iterator[Operation]:
        params, shape = place.dim if self.start == "learned" else 0, (place.grid.tokens, place.dim)
        tensors = copied(shape, shape)
        yield move("shift", f"Shift along {self.axis}s", place.grid.tokens * place.dim, params=params, tensors=tensors)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The token before was kept, d numbers: it is taken, and the new one put in its place."""
        if len(place.grid.sides) > 1:
            raise ComponentError("axis", "--mode decode: tokens shift along the axes of a grid, all at once")
        for row in self.operations(single_token(place)):
            read = row.params if place.grid.total == 1 else 0  # the learned start, where it is the first token's
            kept = {"cache": Cached(place.dim, recurrent=True), "weights_read": WeightsRead(read)}
            yield msgspec.structs.replace(row, moved=2 * place.dim, **kept)
