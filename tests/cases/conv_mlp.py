"""The convolutional feed-forward network under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import GRIDS, VOLUME, MechanismCase
from cases.depthwise_conv import ODD
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv_mlp import ConvMlp

CASE = MechanismCase(
    component=ConvMlp,
    examples=(ConvMlp(), ConvMlp(size=5, hidden=11, act="silu"), ConvMlp(hidden_act="relu"), ConvMlp(size=1)),
    components=st.builds(
        ConvMlp,
        size=ODD,
        ratio=st.sampled_from([0.5, 2, 4]),
        act=st.sampled_from(["gelu", "silu"]),
        hidden_act=st.sampled_from(["none", "relu"]),
    ),
    growth=lambda component: (Grid((component.size, component.size)), Grid((2 * component.size, component.size))),
    grids=(*GRIDS, VOLUME),
    fused=False,
    image=True,
)
