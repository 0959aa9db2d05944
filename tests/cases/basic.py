"""The basic block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase, Rows
from cases.conv_block import AWKWARD, WIDE
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.basic import Basic

CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12, 12)), Grid((12, 24)))),
    component=Basic,
    examples=(Basic(), Basic(stride=2), Basic(stride=3)),
    components=st.builds(Basic, stride=st.integers(1, 5)),
    grids=AWKWARD,
    growth=lambda component: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    image=True,
    dim=WIDE,
    out_dim=lambda component: WIDE + 2 * (component.stride - 1),
    channels_first=lambda leaf: True,
)
