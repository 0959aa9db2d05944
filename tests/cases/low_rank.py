"""Low-rank attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.mechanisms.low_rank import LowRank

EXAMPLES = (
    LowRank(heads=2, rank=4),
    LowRank(heads=3, rank=1, share="none"),
    LowRank(heads=1, head_dim=5, rank=7, share="key_value", projection_bias=False),
)

CASE = MechanismCase(
    component=LowRank,
    examples=EXAMPLES,
    components=st.builds(
        LowRank,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        rank=st.integers(1, 99),
        share=st.sampled_from(["none", "headwise", "key_value", "layerwise"]),
        projection_bias=st.booleans(),
    ),
    grids=SEQUENCES,
)
