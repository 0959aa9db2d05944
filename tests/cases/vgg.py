"""VGG's block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase, Rows
from cases.conv_block import WIDE
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.vgg import Vgg

CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((6, 6)), Grid((6, 12)))),
    component=Vgg,
    examples=(Vgg(), Vgg(convs=1), Vgg(convs=3, norm="batch_norm")),
    components=st.builds(Vgg, convs=st.integers(1, 4), norm=st.sampled_from(["none", "batch_norm"])),
    # Two tokens, odd sides, whose last position goes into no maximum, oblong ones, a volume.
    grids=tuple(Grid(sides) for sides in [(2,), (5,), (2, 2), (2, 5), (7, 9), (8, 6), (2, 3, 4)]),
    sides=st.lists(st.integers(2, 12), min_size=1, max_size=3).map(tuple),
    growth=lambda component: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    per_token=False,
    image=True,
    dim=WIDE,
    # as wide as it came in, or wider
    out_dim=lambda component: WIDE if component.norm == "none" else 2 * WIDE,
    channels_first=lambda leaf: True,
)
