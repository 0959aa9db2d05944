"""RWKV-4's time mixing and channel mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import RwkvChannel, RwkvTime

COMMON = {
    "grids": SEQUENCES,
    "sides": st.integers(1, 60).map(lambda n: (n,)),
    "growth": lambda page: (Grid((4,)), Grid((8,))),
    "fused": False,
    "per_token": False,
    # wide: a square behind a ReLU may be off in many channels
    "dim": 12,
    # beside its own
    "rows": Rows(fewer={"mix": lambda page, place: 1}),
}
CASES = [
    MechanismCase(page=RwkvTime, examples=(RwkvTime(),), pages=st.just(RwkvTime()), **COMMON),
    MechanismCase(
        page=RwkvChannel,
        examples=(RwkvChannel(), RwkvChannel(hidden=40)),
        pages=st.builds(RwkvChannel, hidden=st.none() | st.integers(1, 64)),
        **COMMON,
    ),
]
