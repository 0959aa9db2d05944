"""Mamba-2 under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.mamba2 import Mamba2


@st.composite
def components(draw: st.DrawFn) -> Mamba2:
    expand = draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([1, 2, 3, 6]))
    heads = expand * 12 // head_dim
    return Mamba2(
        state=draw(st.integers(1, 20)),
        head_dim=head_dim,
        groups=draw(st.sampled_from([group for group in range(1, heads + 1) if heads % group == 0])),
        conv=draw(st.integers(1, 9)),
        expand=expand,
        chunk=draw(st.integers(1, 9)),
    )


CASE = MechanismCase(
    rows=Rows(dim=12, grids=lambda component: (Grid((3 * component.chunk,)), Grid((6 * component.chunk,)))),
    component=Mamba2,
    examples=(
        Mamba2(state=3, head_dim=3, chunk=4),
        Mamba2(state=2, head_dim=2, groups=2, conv=1, expand=2, chunk=5),
        Mamba2(state=4, head_dim=2, expand=1, conv=9, chunk=8),
    ),
    components=components(),
    growth=lambda component: (Grid((component.chunk,)), Grid((2 * component.chunk,))),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    channels_first=lambda leaf: leaf == "conv",
)
