"""Class attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.class_attention import ClassAttention

EXAMPLES = (
    ClassAttention(heads=2),
    ClassAttention(heads=3, projection_bias=False),
    ClassAttention(heads=1, head_dim=5),
)
# Nothing but the class token beside one place, oblong, prime; two and three special tokens.
GRIDS = (
    Grid((1,), 1),
    Grid((1, 1), 1),
    Grid((5,), 1),
    Grid((1, 4), 2),
    Grid((7, 9), 1),
    Grid((13, 13), 3),
    Grid((2, 3, 4), 1),
)

CASE = MechanismCase(
    component=ClassAttention,
    examples=EXAMPLES,
    components=st.builds(
        ClassAttention,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.just(value=False),
        projection_bias=st.booleans(),
    ),
    growth=lambda component: (Grid((6,), 1), Grid((12,), 1)),
    grids=GRIDS,
    class_token=True,
)
