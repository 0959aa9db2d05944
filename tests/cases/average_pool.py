"""PoolFormer's pooling under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import GRIDS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.average_pool import AveragePool

CASE = MechanismCase(
    component=AveragePool,
    examples=(AveragePool(), AveragePool(size=5)),
    components=st.builds(AveragePool, size=st.integers(1, 6).map(lambda half: 2 * half + 1)),
    # Large enough for a whole kernel inside.
    growth=lambda component: (Grid((component.size, component.size)), Grid((2 * component.size, component.size))),
    grids=(*GRIDS, Grid((5, 5, 6))),
    fused=False,
    image=True,
    per_token=False,
    contracts=False,
)
