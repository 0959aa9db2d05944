"""Relative attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.relative import Relative

CASE = MechanismCase(
    component=Relative,
    examples=(
        Relative(heads=2, causal=True, memory=3),
        Relative(heads=3, projection_bias=True),
        Relative(heads=1, head_dim=4, causal=True, memory=7, memory_queries=True),
        Relative(heads=2, memory=2),
    ),
    components=st.builds(
        Relative,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.booleans(),
        projection_bias=st.booleans(),
        memory=st.integers(0, 9),
        memory_queries=st.booleans(),
        share=st.sampled_from([None, "biases"]),
    ),
    grids=(*SEQUENCES[:-1], Grid((2, 2), 1)),
)
