"""The non-local block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import VOLUME, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.non_local import NonLocal

# Pools of two must fit; odd sides leave a border that no key reads.
POOLED_GRIDS: tuple[Grid, ...] = (
    *(Grid(sides) for sides in [(2,), (5,), (13,), (2, 2), (3, 5), (7, 9), (4, 13)]),
    VOLUME,
)


EXAMPLES = (
    NonLocal(),
    NonLocal(width=5, projection_bias=False, norm="none"),
    NonLocal(width=2, pool=2),
)

CASE = MechanismCase(
    component=NonLocal,
    examples=EXAMPLES,
    components=st.builds(
        NonLocal,
        width=st.none() | st.integers(1, 20),
        pool=st.integers(1, 3),
        projection_bias=st.booleans(),
        norm=st.sampled_from(["batch_norm", "layer_norm", "none"]),
    ),
    growth=lambda component: (Grid((6, 4)), Grid((12, 4))),
    grids=POOLED_GRIDS,
    sides=st.lists(st.integers(3, 12), min_size=1, max_size=3).map(tuple),
    image=True,
    dim=96,
)
