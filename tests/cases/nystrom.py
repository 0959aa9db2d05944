"""Nyström attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.nystrom import Nystrom

EXAMPLES = (
    Nystrom(heads=2, landmarks=4, conv=3),
    Nystrom(heads=3, landmarks=2, conv=None, iterations=2),
    Nystrom(heads=1, head_dim=5, landmarks=5, conv=7, projection_bias=False),
)

CASE = MechanismCase(
    component=Nystrom,
    examples=EXAMPLES,
    components=st.builds(
        Nystrom,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        landmarks=st.integers(1, 99),
        conv=st.none() | st.integers(0, 9).map(lambda half: 2 * half + 1),
        iterations=st.integers(1, 9),
        projection_bias=st.booleans(),
    ),
    growth=lambda component: (Grid((2 * component.landmarks,)), Grid((4 * component.landmarks,))),
    grids=SEQUENCES,
)
