"""Sinkhorn attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sinkhorn import Sinkhorn


@st.composite
def components(draw: st.DrawFn) -> Sinkhorn:
    causal = draw(st.none() | st.booleans())
    return Sinkhorn(
        heads=draw(HEADS),
        block=draw(st.integers(1, 9)),
        iterations=draw(st.integers(0, 9)),
        temperature=draw(st.floats(0.1, 2)),
        sortcut=None if causal else draw(st.none() | st.integers(1, 4)),
        causal=causal,
        projection_bias=draw(st.booleans()),
    )


EXAMPLES = (
    Sinkhorn(heads=2, block=4),
    Sinkhorn(heads=3, block=3, iterations=2, temperature=0.5, projection_bias=False),
    Sinkhorn(heads=2, head_dim=4, block=4, causal=True),
    Sinkhorn(heads=1, block=2, iterations=1, sortcut=2),
)

CASE = MechanismCase(
    component=Sinkhorn,
    examples=EXAMPLES,
    components=components(),
    growth=lambda component: (Grid((4 * component.block,)), Grid((8 * component.block,))),
    grids=(Grid((1,)), Grid((2,)), Grid((5,)), Grid((3, 4)), Grid((13,)), Grid((7,), 1)),
)
