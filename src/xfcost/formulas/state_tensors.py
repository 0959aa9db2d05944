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


class Steps(NamedTuple):
    """N steps of a recurrence."""

    tokens: Number
    units: Number
    gates: Number
    """Numbers of all gates."""
    states: int
    """One, or two with cells."""
    kept: int
    """Numbers of a hidden unit that a step saves, beside the states before it."""
    keeps_state: bool
    """Is the state after the step one of these?"""


def recurrent(steps: Steps, prefix: str, start: str) -> Tensors:
    """All steps in one row: a step saves its numbers and the states before it.

    The first states are zeros made here, or those of the encoder's layer: views of its output, and its cells.
    """
    n, units, gates, states, kept, keeps_state = steps
    of_state, cells = (units,), f"{prefix}{CELLS}"
    made = n * kept + (0 if keeps_state else (n - 1) * states)
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
    n, units, gates, states, kept, _ = steps
    cells = (n - 1) * (states - 1)
    # zeros are one tensor for h and cells
    asked = n * states - (states - 1 if start == "zeros" else 0)
    reads = (Tensor(BEFORE, (n, gates)), _states(asked, units))
    writes = (Tensor(OUTPUT, (n, units)), Tensor("last", (n * states, units)))
    return Tensors(reads, writes, makes=(Tensor("steps", (n * kept + cells, units)),))


def of_states(row: Operation, steps: Number, units: Number, *, saves: Number = 0) -> Operation:
    """`row`, a map of the states before all steps; it saves this number of them."""
    if row.tensors is None:
        return row
    makes = (Tensor("states", (saves, units)),) if saves else ()
    tensors = msgspec.structs.replace(row.tensors, reads=(_states(steps, units),), saves=(), makes=makes)
    return msgspec.structs.replace(row, tensors=tensors)


def _states(number: Number, units: Number) -> Tensor:
    """States before the steps, which no earlier row writes: all rows run once per step."""
    return Tensor("<states>", (number, units), held=True)


def joined_steps(steps: Number, units: Number, width: Number, *, before: bool, contexts: bool) -> Tensors:
    """States and contexts of all steps, joined; the state `before` each step, of N + 1, are seen without the last.

    The leaf is given N + 1 states and the contexts, whatever it joins.
    """
    n, states = steps, steps + 1 if before else steps
    others = 2 * n + 1 - states  # what is joined and what is seen of it are N + N + 1
    reads = (Tensor("recurrence", (others, units)), Tensor("weighted_sum", (n, width)))
    joined = (Tensor(CONTEXTS, (n, width)),) if contexts else ()
    return Tensors(reads, (Tensor(OUTPUT, (states, units)), *joined))


def seen_states(steps: Number, units: Number) -> Merged:
    """N of N + 1 joined states: a map of them merges steps and batch."""
    return Merged((steps, units), steps, units)
