"""Convolutions as sub-layers under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase
from xfcost.formulas.convolution_mixer import ConvolutionMixer
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv import Conv

FORMS = st.sampled_from(["plain", "depthwise", "separable"])


@st.composite
def components(draw: st.DrawFn) -> Conv:
    causal = draw(st.none() | st.booleans())
    return Conv(
        size=draw(st.integers(1, 9)) if causal else draw(st.integers(0, 4)) * 2 + 1,
        dilation=draw(st.integers(1, 5)),
        causal=causal,
        form=draw(FORMS),
        bias=draw(st.booleans()),
        act=draw(st.sampled_from(["none", "relu", "gelu", "glu"])),
    )


def growth(component: ConvolutionMixer) -> tuple[Grid, Grid]:
    """Longer than the farthest tap."""
    side = 2 * component.size * component.dilation
    return Grid((side,)), Grid((2 * side,))


CASE = MechanismCase(
    component=Conv,
    examples=(
        Conv(act="relu"),
        Conv(size=5, dilation=2, bias=False),
        Conv(form="depthwise"),
        Conv(form="separable", act="glu"),
        Conv(size=1, act="glu"),
        Conv(size=4, dilation=2, causal=True),
        Conv(size=2, causal=True, form="separable", bias=False),
    ),
    components=components(),
    growth=growth,
    # other grids: tests/test_conv.py
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    per_token=False,
    channels_first=lambda leaf: leaf in {"conv", "depthwise", "pad"},
)
