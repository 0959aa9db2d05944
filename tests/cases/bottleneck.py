"""The bottleneck under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase, Rows
from cases.conv_block import AWKWARD, WIDE
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.bottleneck import Bottleneck
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.local_relation import LocalRelation


def widened(component: Bottleneck) -> int:
    """A stage of another width for most examples: the shortcut is a convolution there, even without a stride."""
    return WIDE if component.width == 20 else 2 * WIDE


@st.composite
def components(draw: st.DrawFn) -> Bottleneck:
    width = draw(st.sampled_from([{"width": 6}, {"expansion": 2}, {"expansion": 1}, {"width": 12}]))
    return Bottleneck(
        stride=draw(st.integers(1, 5)),
        stride_on=draw(st.sampled_from(["1x1", "3x3"])),
        squeeze=draw(st.sampled_from([None, 0.25, 0.5])),
        **width,
        **draw(st.sampled_from([{}, {"groups": 3}, {"group_width": 2}])),
    )


CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((10, 10)), Grid((10, 22)))),
    component=Bottleneck,
    examples=(
        Bottleneck(width=20),
        Bottleneck(expansion=3, stride=2),
        Bottleneck(expansion=2, stride=2, stride_on="1x1", groups=3),
        Bottleneck(expansion=1, stride=2, group_width=6, squeeze=0.25),
        Bottleneck(width=20, stride=3, squeeze=0.5),
        Bottleneck(width=12, stride=2, spatial=LocalAttention(heads=2, size=3)),
        Bottleneck(width=12, stride=2, stride_on="1x1", spatial=LocalAttention(heads=2, size=3)),
        Bottleneck(width=12, stride=2, spatial=LocalRelation(size=3, share=5)),
    ),
    components=components(),
    grids=AWKWARD,
    growth=lambda component: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    image=True,
    dim=WIDE,
    out_dim=widened,
    channels_first=lambda leaf: not leaf.startswith("spatial"),
)
