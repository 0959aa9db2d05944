"""What the cases of RWKV-4's time mixing and channel mixing share."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES
from xfcost.ledger.grid import Grid

COMMON = {
    "grids": SEQUENCES,
    "sides": st.integers(1, 60).map(lambda n: (n,)),
    "growth": lambda component: (Grid((4,)), Grid((8,))),
    "fused": False,
    "per_token": False,
    # wide: a square behind a ReLU may be off in many channels
    "dim": 12,
    # beside its own
}
