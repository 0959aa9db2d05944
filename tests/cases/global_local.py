"""Global-local attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.global_local import GlobalLocal


def whole_blocks(component: GlobalLocal) -> tuple[Grid, Grid]:
    tokens = 3 * (component.radius + 1)
    return Grid((tokens,), 2), Grid((2 * tokens,), 2)


CASE = MechanismCase(
    component=GlobalLocal,
    examples=(
        GlobalLocal(heads=2, radius=1),
        GlobalLocal(heads=3, radius=2, share_projections=False, share_output=False),
        GlobalLocal(heads=1, radius=4, share_output=False, head_dim=5, projection_bias=False),
    ),
    components=st.builds(
        GlobalLocal,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        radius=st.integers(1, 20),
        share_projections=st.booleans(),
        share_output=st.booleans(),
        projection_bias=st.booleans(),
        causal=st.none() | st.just(value=False),
    ),
    growth=whole_blocks,
    grids=(Grid((1,)), Grid((9,)), Grid((1,), 1), Grid((2,), 3), Grid((7,), 1), Grid((13,), 2), Grid((3, 5), 4)),
    fused=False,
)
