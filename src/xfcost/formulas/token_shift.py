"""RWKV's token shift, the base of its time and channel mixing."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.causal_mixers import AlwaysCausalMixer
from xfcost.formulas.component import Operation, Place
from xfcost.formulas.rows import elementwise, move, state_write


class TokenShiftMixer(AlwaysCausalMixer, frozen=True, kw_only=True):
    """A mixer that starts with a token shift: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d per use."""

    def shift(self, place: Place, uses: int) -> Iterator[Operation]:
        """The previous tokens, N·d elements written; the mixtures, uses·d parameters, (1 + 2·uses)·N·d FLOPs."""
        elements = place.grid.total * place.dim
        cached = state_write("Token shift", place.dim, path="shift")
        yield move("shift", "Token shift", elements, in_decode=(cached,))
        work, title = "add" + uses * " + multiply + add", "Mix with the token before"
        params = uses * place.dim
        yield elementwise("mix", title, work, elements, params=params, mixing="local", reads="2", reads_tokens=2)

    def gated(self, place: Place) -> Operation:
        """σ(r)∘x."""
        return elementwise("gate", "Receptance gate", "sigmoid + multiply", place.grid.total * place.dim)
