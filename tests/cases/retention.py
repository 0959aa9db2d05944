"""Retention under the contract, in its three forms."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.retention import Retention


@st.composite
def components(draw: st.DrawFn) -> Retention:
    heads = draw(st.sampled_from([1, 2, 3, 6]))
    form = draw(st.sampled_from(["parallel", "chunkwise", "recurrent"]))
    return Retention(
        heads=heads,
        value_dim=draw(st.none() | st.integers(1, 9).map(lambda times: times * heads)),
        form=form,
        chunk=draw(st.none() | st.integers(1, 9)) if form == "chunkwise" else None,
        norm=draw(st.sampled_from(["layer_norm", "rms_norm"])),
    )


CASE = MechanismCase(
    rows=Rows(
        dim=36, grids=lambda component: (Grid((3 * (component.chunk or 4),)), Grid((6 * (component.chunk or 4),)))
    ),
    component=Retention,
    examples=(
        Retention(heads=2),
        Retention(heads=3, value_dim=15, norm="rms_norm", form="chunkwise", chunk=4),
        Retention(heads=2, form="chunkwise", chunk=5),
        Retention(heads=6, form="recurrent"),
    ),
    components=components(),
    growth=lambda component: (Grid((component.chunk or 6,)), Grid((2 * (component.chunk or 6),))),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    dim=12,
)
