"""Unfolded attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.unfolded import Unfolded

CASE = MechanismCase(
    component=Unfolded,
    examples=(
        Unfolded(heads=2),
        Unfolded(heads=3, patch=1),
        Unfolded(heads=1, head_dim=4, projection_bias=False),
    ),
    components=st.builds(
        Unfolded,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        patch=st.sampled_from([1, 2, 3, 6]),
        projection_bias=st.booleans(),
        causal=st.none() | st.just(value=False),
    ),
    growth=lambda component: (Grid((4, 2)), Grid((8, 2))),
    # One patch, a row and a column of them, oblong both ways, a sequence, a volume: patches must tile the grid.
    grids=tuple(Grid(sides) for sides in [(2,), (10,), (2, 2), (2, 8), (6, 2), (6, 10), (2, 4, 6)]),
    sides=st.lists(st.integers(1, 3).map(lambda patches: 6 * patches), min_size=1, max_size=3).map(tuple),
    image=True,
)
