"""What autograd saves of a recurrence: numbers of every step, and the states between the steps.

With attention, every step runs by itself: its state is copied out of it, and the query's map saves the copy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, OUTPUT, Merged, Saved, Tensor, Tensors, of_encoder

CELLS: Final = "cells"
"""The last cells of an LSTM."""
CONTEXTS: Final = "contexts"
"""The contexts of all steps, joined."""
STATES: Final = "states"
"""The states before all steps."""


class Steps(NamedTuple):
    """N steps of a recurrence."""

    tokens: Number
    units: Number
    gates: Number
    """Numbers of all gates."""
    states: int
    """One, or two with cells."""
    saved: int
    """Numbers of a hidden unit that a step saves, beside the states before it."""
    saves_state: bool
    """Is the state after the step one of these?"""


def recurrent(steps: Steps, prefix: str, start: str) -> Tensors:
    """All steps in one row: a step saves its numbers and the states before it.

    The first states are zeros made here, or those of the encoder's layer: views of its output, and its cells.
    """
    n, units, gates, states, saved, saves_state = steps
    of_state, cells = (units,), f"{prefix}{CELLS}"
    made = n * saved + (0 if saves_state else (n - 1) * states)
    given: tuple[str, ...] = ()
    if start == "encoder":
        given = tuple(of_encoder(name) for name in (f"{prefix}recurrence", cells)[:states])
    else:
        made += states
    reads = (Tensor(BEFORE, (n, gates)), *(Tensor(name, of_state) for name in given))
    last = (Tensor(f"{prefix}last", of_state), Tensor(cells, of_state))[:states]
    saves = tuple(Saved(name) for name in given)
    return Tensors(reads, (Tensor(OUTPUT, (n, units)), *last), saves, (Tensor("steps", (made, units)),))


def recurrent_in_attention(steps: Steps, start: str) -> Tensors:
    """One step after the other: the query's map saves h, and cells are saved but the first, made with the first h."""
    n, units, gates, states, saved, _ = steps
    cells = (n - 1) * (states - 1)
    # zeros are one tensor for h and cells
    asked = n * states - (states - 1 if start == "zeros" else 0)
    reads = (Tensor(BEFORE, (n, gates)), Tensor(STATES, (asked, units)))
    writes = (Tensor(OUTPUT, (n, units)), Tensor("last", (n * states, units)))
    return Tensors(reads, writes, makes=(Tensor("steps", (n * saved + cells, units)),))


def of_states(row: Operation, steps: Number, units: Number, *, new: Number | None = None) -> Operation:
    """`row`, a map of the states before all steps, which it saves.

    The first map is given the `new` ones: each step leaves one, and the first may be a tensor that is saved already.
    """
    if row.tensors is None:
        return row
    tensors = msgspec.structs.replace(row.tensors, reads=(Tensor(STATES, (steps, units)),), saves=(Saved(STATES),))
    if new is not None:
        tensors = msgspec.structs.replace(tensors, between=(Tensor(STATES, (new, units)),))
    return msgspec.structs.replace(row, tensors=tensors)


def joined_steps(steps: Number, units: Number, width: Number, *, before: bool, contexts: bool) -> Tensors:
    """States and contexts of all steps, joined; of N + 1 states, the one `before` each step is seen.

    The leaf is given N + 1 states and the contexts, whatever it joins.
    """
    reads = (Tensor("recurrence", (steps + 1, units)), Tensor("weighted_sum", (steps, width)))
    states = Tensor(OUTPUT, (steps, units), storage=(steps + 1) * units if before else None)
    joined = (Tensor(CONTEXTS, (steps, width)),) if contexts else ()
    return Tensors(reads, (states, *joined))


def seen_states(steps: Number, units: Number) -> Merged:
    """N of N + 1 joined states: a map of them merges steps and batch."""
    return Merged((steps, units), steps, units)
