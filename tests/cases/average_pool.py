"""PoolFormer's pooling under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import GRIDS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import AveragePool

CASE = MechanismCase(
    page=AveragePool,
    examples=(AveragePool(), AveragePool(size=5)),
    pages=st.builds(AveragePool, size=st.integers(1, 6).map(lambda half: 2 * half + 1)),
    # Large enough for a whole kernel inside.
    growth=lambda page: (Grid((page.size, page.size)), Grid((2 * page.size, page.size))),
    grids=(*GRIDS, Grid((5, 5, 6))),
    fused=False,
    image=True,
    per_token=False,
    contracts=False,
)
