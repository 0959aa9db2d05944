"""Conformer's convolution module under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv_module import ConvModule

CASE = MechanismCase(
    component=ConvModule,
    examples=(ConvModule(), ConvModule(size=4), ConvModule(size=3), ConvModule(size=1), ConvModule(size=2)),
    components=st.builds(ConvModule, size=st.integers(1, 40)),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    # Large enough for a whole kernel inside.
    growth=lambda component: (Grid((2 * component.size,)), Grid((4 * component.size,))),
    fused=False,
)
