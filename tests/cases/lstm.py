"""LSTM under the contract."""

from __future__ import annotations

from cases.recurrent import recurrent_case
from xfcost.formulas.additive_attention import Additive, Sum
from xfcost.mechanisms.lstm import Lstm

CASE = recurrent_case(
    Lstm,
    (
        Lstm(),
        Lstm(bidirectional=True, bias=False),
        Lstm(hidden=4, residual="none"),
        Lstm(hidden=4, attend=Additive(hidden=3, bias=True, gate=True), start="mean", readout=Sum()),
    ),
)
