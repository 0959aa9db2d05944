"""ConvNeXt's block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import GRIDS, VOLUME, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.convnext import ConvNext

CASE = MechanismCase(
    component=ConvNext,
    examples=(ConvNext(), ConvNext(size=3, norm="none", act="silu"), ConvNext(size=1, hidden=5), ConvNext(size=5)),
    components=st.builds(
        ConvNext,
        size=st.integers(0, 6).map(lambda half: 2 * half + 1),
        ratio=st.sampled_from([0.5, 2, 4]),
        norm=st.sampled_from(["layer_norm", "rms_norm"]),
        act=st.sampled_from(["gelu", "silu"]),
    ),
    growth=lambda component: (Grid((component.size, component.size)), Grid((2 * component.size, component.size))),
    grids=(*GRIDS, VOLUME),
    fused=False,
    image=True,
)
