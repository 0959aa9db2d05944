"""Hyena under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.hyena import Hyena

CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12,)), Grid((24,)))),
    component=Hyena,
    examples=(
        Hyena(features=5, filter_hidden=7),
        Hyena(order=3, conv=1, features=3, filter_hidden=4, filter_layers=1, positions="fixed"),
        Hyena(order=4, conv=9, features=9, filter_hidden=5, filter_layers=3),
    ),
    components=st.builds(
        Hyena,
        order=st.integers(2, 6),
        conv=st.integers(1, 9),
        features=st.integers(1, 20).map(lambda bands: 2 * bands + 1),
        filter_hidden=st.integers(1, 64),
        filter_layers=st.integers(1, 4),
        positions=st.sampled_from(["learned", "fixed"]),
    ),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    growth=lambda component: (Grid((4,)), Grid((8,))),
    fused=False,
    channels_first=lambda leaf: leaf == "short_conv",
    rounding=1e-13,
)
