"""ByteNet's block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase
from cases.conv import growth
from xfcost.mechanisms.bytenet import ByteNet

CASE = MechanismCase(
    component=ByteNet,
    examples=(ByteNet(), ByteNet(size=3, dilation=4, causal=True), ByteNet(size=5, dilation=2), ByteNet(size=1)),
    components=st.builds(
        ByteNet, size=st.integers(0, 4).map(lambda half: 2 * half + 1), dilation=st.integers(1, 5), causal=st.booleans()
    ),
    growth=growth,
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    # a ReLU first: few channels may all be off
    dim=24,
    per_token=True,
    channels_first=lambda leaf: leaf in {"conv", "pad"},
)
