"""What RWKV's time and channel mixing share: the token shift."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from xfcost.formulas.component import Mixer, Place, alone
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import decode_step, move, state
from xfcost.ledger.operation import Operation


class Shifted(Mixer, frozen=True, kw_only=True):
    """What mixes every token with the one before it first: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d for each use."""

    @property
    def causality(self) -> Literal["exact"]:
        return "exact"

    def shift(self, place: Place, uses: int) -> Iterator[Operation]:
        """The token before each, N·d elements written; and the mixtures, uses·d parameters, (1 + 2·uses)·N·d FLOPs."""
        elements = place.grid.total * place.dim
        kept = state("Token shift", place.dim, path="shift")
        yield move("shift", "Token shift", elements, in_decode=(kept,))
        each = uses * (FLOPS_PER_ELEMENT["multiply"] + FLOPS_PER_ELEMENT["add"]) + FLOPS_PER_ELEMENT["add"]
        mix = Operation(path="mix", title="Mix with the token before", params=uses * place.dim, flops=elements * each)
        yield msgspec.structs.replace(mix, mixing="local", reads="2", reads_tokens=2)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The rows of one token; the one before it is kept."""
        return decode_step(self.operations(alone(place)), place.grid.total)

    def gated(self, place: Place) -> Operation:
        """σ(r)∘x."""
        work = FLOPS_PER_ELEMENT["sigmoid"] + FLOPS_PER_ELEMENT["multiply"]
        return Operation(path="gate", title="Receptance gate", flops=place.grid.total * place.dim * work)
