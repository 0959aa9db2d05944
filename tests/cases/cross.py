"""Cross-attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.mechanisms.cross import Cross

EXAMPLES = (
    Cross(heads=2),
    Cross(heads=3, head_dim=4, projection_bias=False),
    Cross(heads=2, head_dim=5, projection_bias=False, scaled=False),
    Cross(heads=3, value_dim=5),
    Cross(heads=2, head_dim=4, value_dim=1, projection_bias=False),
)

CASE = MechanismCase(
    component=Cross,
    examples=EXAMPLES,
    components=st.builds(
        Cross,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        value_dim=st.none() | st.integers(1, 64),
        projection_bias=st.booleans(),
        scaled=st.booleans(),
    ),
    memory=True,
    symbolic=EXAMPLES,
)
