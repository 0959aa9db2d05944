"""RWKV's token shift, the base of its time and channel mixing."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.causal_mixers import AlwaysCausalMixer
from xfcost.formulas.component import Number, Operation, Place
from xfcost.formulas.rows import elementwise, move, state_write
from xfcost.formulas.tensors import copied, gated
from xfcost.ledger.tensors import INPUT, OUTPUT, Tensor, Tensors


class TokenShiftMixer(AlwaysCausalMixer, frozen=True, kw_only=True):
    """A mixer that starts with a token shift: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d per use."""

    def shift(self, place: Place, uses: int) -> Iterator[Operation]:
        """The previous tokens, N·d elements written; the mixtures, uses·d parameters, (1 + 2·uses)·N·d FLOPs."""
        elements = place.grid.total * place.dim
        cached = state_write("Token shift", place.dim, path="shift")
        tensors = copied((elements,), (elements,), INPUT)
        yield move("shift", "Token shift", elements, in_decode=(cached,), tensors=tensors)
        work, title = "add" + uses * " + multiply + add", "Mix with the token before"
        params = uses * place.dim
        facts = {"params": params, "mixing": "local", "reads": "2", "reads_tokens": 2}
        yield elementwise("mix", title, work, elements, tensors=_mixed(elements, uses), **facts)

    def gated(self, place: Place, name: str) -> Operation:
        """σ(r)∘x, x the row `name`."""
        elements = place.grid.total * place.dim
        tensors = gated(name, "receptance", elements, act="sigmoid")
        return elementwise("gate", "Receptance gate", "sigmoid + multiply", elements, tensors=tensors)


def mixture(use: int) -> str:
    """The tensor of a use's mixture."""
    return "mix" if use == 0 else f"mixture {use}"


def _mixed(elements: Number, uses: int) -> Tensors:
    """What sets a token apart from the one before is saved, for the gradients of the shares."""
    reads = tuple(Tensor(name, (elements,)) for name in (INPUT, "shift"))
    writes = tuple(Tensor(mixture(use) if use else OUTPUT, (elements,)) for use in range(uses))
    return Tensors(reads, writes, makes=(Tensor("apart", (elements,)),))
