"""Stand-alone local self-attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.local_attention import LocalAttention

# Smaller than the windows, of one position, one row, odd sides through strides.
SMALL_GRIDS: tuple[Grid, ...] = (
    *(Grid(sides) for sides in [(1,), (5,), (1, 1), (2, 2), (1, 7), (3, 5), (4, 5), (2, 1, 3)]),
)


EXAMPLES = (
    LocalAttention(heads=2, size=3),
    LocalAttention(heads=3, size=5, position="none"),
    LocalAttention(heads=1, size=3, stride=2),
)

CASE = MechanismCase(
    component=LocalAttention,
    examples=EXAMPLES,
    components=st.builds(
        LocalAttention,
        heads=st.sampled_from([1, 2]),
        size=st.sampled_from([3, 5, 7]),
        position=st.sampled_from(["relative", "none"]),
        stride=st.integers(1, 3),
    ),
    growth=lambda component: (Grid((10, 6)), Grid((20, 6))),
    grids=SMALL_GRIDS,
    image=True,
    dim=12,
)
