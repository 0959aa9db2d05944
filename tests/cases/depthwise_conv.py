"""The depthwise convolution under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import GRIDS, VOLUME, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.depthwise_conv import DepthwiseConv

ODD = st.integers(0, 6).map(lambda half: 2 * half + 1)


CASE = MechanismCase(
    component=DepthwiseConv,
    examples=(DepthwiseConv(), DepthwiseConv(size=1), DepthwiseConv(size=5)),
    components=st.builds(DepthwiseConv, size=ODD),
    growth=lambda component: (Grid((component.size, component.size)), Grid((2 * component.size, component.size))),
    grids=(*GRIDS, VOLUME),
    fused=False,
    image=True,
    per_token=False,
)
