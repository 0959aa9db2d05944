"""RWKV-4's channel mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from cases.rwkv import COMMON
from xfcost.mechanisms.rwkv_channel import RwkvChannel

CASE = MechanismCase(
    component=RwkvChannel,
    examples=(RwkvChannel(), RwkvChannel(hidden=40)),
    components=st.builds(RwkvChannel, hidden=st.none() | st.integers(1, 64)),
    **COMMON,
)
