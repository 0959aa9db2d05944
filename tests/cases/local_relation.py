"""The local relation layer under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from cases.local_attention import SMALL_GRIDS
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.local_relation import LocalRelation

EXAMPLES = (
    LocalRelation(size=3, share=2),
    LocalRelation(size=5, share=4),  # 6 channels are filled up to 8
    LocalRelation(size=5, share=3, stride=3),
    LocalRelation(size=3, share=8, stride=2),
    LocalRelation(size=3, share=1),
)

CASE = MechanismCase(
    component=LocalRelation,
    examples=EXAMPLES,
    components=st.builds(
        LocalRelation,
        size=st.sampled_from([3, 5, 7]),
        share=st.integers(1, 9),
        stride=st.integers(1, 2),
    ),
    growth=lambda component: (Grid((10, 6)), Grid((20, 6))),
    grids=SMALL_GRIDS,
    image=True,
    fused=False,
)
