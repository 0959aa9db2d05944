"""GRU under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.recurrent import ATTENTION, recurrent_case
from xfcost.formulas.additive_attention import Maxout
from xfcost.mechanisms.gru import Gru

CASE = recurrent_case(
    Gru,
    (
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
    reset=st.sampled_from(["after", "before"]),
)
