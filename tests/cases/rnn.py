"""RNN under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.recurrent import ATTENTION, recurrent_case
from xfcost.mechanisms.rnn import Rnn

CASE = recurrent_case(
    Rnn,
    (Rnn(), Rnn(act="relu", bias=False), Rnn(bidirectional=True), Rnn(attend=ATTENTION)),
    act=st.sampled_from(["tanh", "relu"]),
)
