"""RNN, LSTM and GRU under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase, Rows
from xfcost.formulas.additive import Additive, Maxout, Sum
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import Gru, Lstm, Rnn

# Recurrent layers see a sequence, a grid in raster order. A longer one forgets its first token to the last bit.
GRIDS = (*(Grid((n,)) for n in (1, 2, 5, 13)), Grid((3, 4)), Grid((1, 1), 1), Grid((2, 2), 1))


OPTIONS = {
    "hidden": st.none() | st.integers(1, 64),
    "bidirectional": st.booleans(),
    "bias": st.booleans(),
}
ATTENTION = Additive(hidden=5)
EXAMPLES = {
    Rnn: (Rnn(), Rnn(act="relu", bias=False), Rnn(bidirectional=True), Rnn(attend=ATTENTION)),
    Lstm: (
        Lstm(),
        Lstm(bidirectional=True, bias=False),
        Lstm(hidden=4, residual="none"),
        Lstm(hidden=4, attend=Additive(hidden=3, bias=True, gate=True), start="mean", readout=Sum()),
    ),
    Gru: (
        Gru(),
        Gru(reset="before"),
        Gru(reset="before", bias=False),
        Gru(bidirectional=True),
        Gru(attend=ATTENTION, start="mean"),
        Gru(
            hidden=4,
            bias=False,
            reset="before",
            attend=ATTENTION,
            start="backwards",
            readout=Maxout(hidden=3),
            residual="none",
        ),
    ),
}
MORE = {Rnn: {"act": st.sampled_from(["tanh", "relu"])}, Lstm: {}, Gru: {"reset": st.sampled_from(["after", "before"])}}
READING = {
    "hidden": st.integers(1, 64),
    "bias": st.booleans(),
    "attend": st.builds(Additive, hidden=st.integers(1, 64), bias=st.booleans(), gate=st.booleans()),
    "start": st.sampled_from(["zeros", "backwards", "mean"]),
    "readout": st.none() | st.builds(Maxout, hidden=st.integers(1, 64)) | st.builds(Sum),
}

ASKING = frozenset(
    ("query", "gate_linear", "context", "add_context", "recurrence", "join", "readout_state", "readout_add")
)
CASES = [
    MechanismCase(
        component=component,
        examples=examples,
        components=st.builds(component, **OPTIONS, **MORE[component])
        | st.builds(component, **READING, **MORE[component]),
        grids=GRIDS,
        # few: where shapes are all that counts the steps are walked all the same
        growth=lambda component: (Grid((2,)), Grid((4,))),
        fused=False,
        memory=True,
        # its input map alone is per token; the state's is the recurrence
        per_token=False,
        # it asks with the state of the step before: what it reads is counted for that step's token, and not for its own
        rows=Rows(left_out=lambda component: ASKING if component.attend else frozenset()),
    )
    for component, examples in EXAMPLES.items()
]
