"""RWKV-4's time mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from cases.rwkv import COMMON
from xfcost.mechanisms.rwkv_time import RwkvTime

CASE = MechanismCase(component=RwkvTime, examples=(RwkvTime(),), components=st.just(RwkvTime()), **COMMON)
