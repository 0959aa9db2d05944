"""RWKV's token shift, the base of its time and channel mixing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from xfcost.formulas.causal_mixers import AlwaysCausalMixer
from xfcost.formulas.component import Place
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import move, state_write
from xfcost.ledger.operation import Operation


class TokenShiftMixer(AlwaysCausalMixer, frozen=True, kw_only=True):
    """A mixer that starts with a token shift: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d per use."""

    def shift(self, place: Place, uses: int) -> Iterator[Operation]:
        """The previous tokens, N·d elements written; the mixtures, uses·d parameters, (1 + 2·uses)·N·d FLOPs."""
        elements = place.grid.total * place.dim
        cached = state_write("Token shift", place.dim, path="shift")
        yield move("shift", "Token shift", elements, in_decode=(cached,))
        flops_per_element = uses * (FLOPS_PER_ELEMENT["multiply"] + FLOPS_PER_ELEMENT["add"]) + FLOPS_PER_ELEMENT["add"]
        mix = Operation(
            path="mix", title="Mix with the token before", params=uses * place.dim, flops=elements * flops_per_element
        )
        yield msgspec.structs.replace(mix, mixing="local", reads="2", reads_tokens=2)

    def gated(self, place: Place) -> Operation:
        """σ(r)∘x."""
        work = FLOPS_PER_ELEMENT["sigmoid"] + FLOPS_PER_ELEMENT["multiply"]
        return Operation(path="gate", title="Receptance gate", flops=place.grid.total * place.dim * work)
