"""What the cases of RNN, LSTM and GRU share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cases.base import MechanismCase
from xfcost.formulas.additive_attention import Additive, Maxout, Sum
from xfcost.formulas.recurrent import Recurrent
from xfcost.ledger.grid import Grid

# Recurrent layers see a sequence, a grid in raster order. A longer one forgets its first token to the last bit.
GRIDS = (*(Grid((n,)) for n in (1, 2, 5, 13)), Grid((3, 4)), Grid((1, 1), 1), Grid((2, 2), 1))


OPTIONS = {
    "hidden": st.none() | st.integers(1, 64),
    "bidirectional": st.booleans(),
    "bias": st.booleans(),
}
ATTENTION = Additive(hidden=5)
READING = {
    "hidden": st.integers(1, 64),
    "bias": st.booleans(),
    "attend": st.builds(Additive, hidden=st.integers(1, 64), bias=st.booleans(), gate=st.booleans()),
    "start": st.sampled_from(["zeros", "backwards", "mean"]),
    "readout": st.none() | st.builds(Maxout, hidden=st.integers(1, 64)) | st.builds(Sum),
}


def recurrent_case(component: type[Recurrent], examples: tuple[Recurrent, ...], **more: Any) -> MechanismCase:
    """`more`: strategies of the options that this one alone has."""
    return MechanismCase(
        component=component,
        examples=examples,
        components=st.builds(component, **OPTIONS, **more) | st.builds(component, **READING, **more),
        grids=GRIDS,
        # few: where shapes are all that counts the steps are walked all the same
        growth=lambda component: (Grid((2,)), Grid((4,))),
        fused=False,
        memory=True,
        # its input map alone is per token; the state's is the recurrence
        per_token=False,
        # it asks with the state of the step before: what it reads is counted for that step's token, and not for its own
    )
