"""SAGAN's self-attention layer under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from cases.non_local import POOLED_GRIDS
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sagan import Sagan

EXAMPLES = (
    Sagan(reduction=2, value_reduction=3),
    Sagan(reduction=3, value_reduction=1, output_projection=False),
    Sagan(reduction=6, value_reduction=2, pool=2),
)

CASE = MechanismCase(
    component=Sagan,
    examples=EXAMPLES,
    components=st.builds(
        Sagan,
        reduction=st.sampled_from([1, 2, 3, 6]),
        value_reduction=st.sampled_from([1, 2, 3, 6]),
        pool=st.integers(1, 3),
    ),
    growth=lambda component: (Grid((6, 4)), Grid((12, 4))),
    grids=POOLED_GRIDS,
    sides=st.lists(st.integers(3, 12), min_size=1, max_size=3).map(tuple),
    image=True,
    dim=96,
)
