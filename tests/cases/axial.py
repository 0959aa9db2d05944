"""Axial attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, VOLUME, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.axial import Axial

CASE = MechanismCase(
    component=Axial,
    examples=(
        Axial(axis="row", heads=2),
        Axial(axis="column", heads=3, causal=True),
        Axial(axis="row", heads=1, head_dim=5, causal=True, projection_bias=False),
        Axial(axis="all", heads=2),
        Axial(axis="all", heads=1, causal=True),
    ),
    components=st.builds(
        Axial,
        axis=st.sampled_from(["row", "column", "depth", "all"]),
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.booleans(),
        projection_bias=st.booleans(),
    ),
    growth=lambda component: (Grid((3, 3)), Grid((6, 6))),
    # One token, one row, one column, oblong both ways, an odd prime square, three axes.
    grids=(*(Grid(sides) for sides in [(1, 1), (1, 5), (5, 1), (3, 5), (7, 7)]), VOLUME),
    sides=st.lists(st.integers(1, 8), min_size=3, max_size=3).map(tuple),
    image=True,
)
