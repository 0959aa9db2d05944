"""The inverted residual under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import DIM, MechanismCase, Rows
from cases.conv_block import AWKWARD
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.inverted_residual import InvertedResidual

CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((8, 8)), Grid((8, 16)))),
    component=InvertedResidual,
    examples=(
        InvertedResidual(),
        InvertedResidual(ratio=2, stride=2),
        InvertedResidual(ratio=1),
        InvertedResidual(hidden=9),
        InvertedResidual(ratio=6, act="relu6"),
        InvertedResidual(size=5, stride=2, squeeze=0.5),
        InvertedResidual(ratio=1, squeeze=0.25),
    ),
    components=st.builds(
        InvertedResidual,
        ratio=st.sampled_from([1, 1.5, 2, 4]),
        hidden=st.none() | st.integers(1, 40),
        stride=st.sampled_from([1, 2]),
        size=st.sampled_from([3, 5, 7]),
        act=st.sampled_from(["silu", "relu6"]),
        squeeze=st.sampled_from([None, 0.25, 0.5]),
    ),
    grids=AWKWARD,
    growth=lambda component: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    image=True,
    # as wide as it came in, with a stride and without, or wider and so not added
    out_dim=lambda component: DIM + 2 * (component.hidden == 9),
    channels_first=lambda leaf: True,
)
