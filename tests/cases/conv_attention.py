"""Attention with convolutional projections under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import GRIDS, GRIDS_WITH_EXTRA, HEADS, VOLUME, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv_attention import ConvAttention


@st.composite
def components(draw: st.DrawFn) -> ConvAttention:
    half = draw(st.integers(0, 3))
    return ConvAttention(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        size=2 * half + 1,
        kv_stride=draw(st.integers(1, half + 1)),
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    component=ConvAttention,
    examples=(
        ConvAttention(heads=2),
        ConvAttention(heads=1, head_dim=5, kv_stride=1, projection_bias=False),
        ConvAttention(heads=3, size=5, kv_stride=3),
    ),
    components=components(),
    # Whole strides of both, 2 and 3.
    growth=lambda component: (Grid((6,)), Grid((12,))),
    grids=(*(grid for grid in GRIDS if grid.tokens < 100), *GRIDS_WITH_EXTRA, VOLUME),
    image=True,
)
