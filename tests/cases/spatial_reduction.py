"""Spatial-reduction attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.spatial_reduction import SpatialReduction


@st.composite
def components(draw: st.DrawFn) -> SpatialReduction:
    reduced = draw(st.booleans())
    return SpatialReduction(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        reduction=draw(st.integers(1, 4)) if reduced else 1,
        pooled=None if reduced else draw(st.none() | st.integers(1, 9)),
        projection_bias=draw(st.booleans()),
    )


# One patch, patches of 2 and of 3 that leave a rest along one side or both, fewer tokens than pooled ones.
GRIDS = tuple(Grid(sides) for sides in [(3,), (8,), (3, 3), (3, 5), (6, 4), (7, 9), (13, 13), (3, 4, 3)])


def growth(component: SpatialReduction) -> tuple[Grid, Grid]:
    """Whole patches, or windows of one length."""
    side = 2 * component.reduction * (component.pooled or 1)
    return Grid((side,)), Grid((2 * side,))


CASE = MechanismCase(
    component=SpatialReduction,
    examples=(
        SpatialReduction(heads=2, reduction=2),
        SpatialReduction(heads=1, head_dim=5, reduction=3, projection_bias=False),
        SpatialReduction(heads=3),
        SpatialReduction(heads=2, pooled=2),
        SpatialReduction(heads=2, pooled=7),
    ),
    components=components(),
    growth=growth,
    grids=GRIDS,
    sides=st.lists(st.integers(4, 12), min_size=1, max_size=2).map(tuple),
    image=True,
)
