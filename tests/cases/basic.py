"""The basic block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from cases.conv_block import AWKWARD, WIDE
from xfcost.grid import Grid
from xfcost.mechanisms import Basic

CASE = MechanismCase(
    page=Basic,
    examples=(Basic(), Basic(stride=2), Basic(stride=3)),
    pages=st.builds(Basic, stride=st.integers(1, 5)),
    grids=AWKWARD,
    growth=lambda page: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    image=True,
    dim=WIDE,
    out_dim=lambda page: WIDE + 2 * (page.stride - 1),
    channels_first=lambda leaf: True,
)
