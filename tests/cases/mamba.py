"""Mamba under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.mamba import Mamba

CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12,)), Grid((24,)))),
    component=Mamba,
    examples=(Mamba(state=3), Mamba(state=2, conv=1, expand=1, rank=3), Mamba(state=4, conv=9)),
    components=st.builds(
        Mamba,
        state=st.integers(1, 20),
        conv=st.integers(1, 9),
        expand=st.integers(1, 4),
        rank=st.none() | st.integers(1, 9),
    ),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    growth=lambda component: (Grid((2,)), Grid((4,))),
    fused=False,
    per_token=False,
    channels_first=lambda leaf: leaf == "conv",
)
