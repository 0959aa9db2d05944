"""RWKV-4's time mixing and channel mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import RwkvChannel, RwkvTime

COMMON = {
    "grids": SEQUENCES,
    "sides": st.integers(1, 60).map(lambda n: (n,)),
    "growth": lambda component: (Grid((4,)), Grid((8,))),
    "fused": False,
    "per_token": False,
    # wide: a square behind a ReLU may be off in many channels
    "dim": 12,
    # beside its own
    "rows": Rows(fewer={"mix": lambda component, place: 1}),
}
CASES = [
    MechanismCase(component=RwkvTime, examples=(RwkvTime(),), components=st.just(RwkvTime()), **COMMON),
    MechanismCase(
        component=RwkvChannel,
        examples=(RwkvChannel(), RwkvChannel(hidden=40)),
        components=st.builds(RwkvChannel, hidden=st.none() | st.integers(1, 64)),
        **COMMON,
    ),
]
