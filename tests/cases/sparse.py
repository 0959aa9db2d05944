"""Sparse Transformer's factorised attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sparse import Sparse


@st.composite
def components(draw: st.DrawFn) -> Sparse:
    stride = draw(st.integers(1, 7))
    pattern = draw(st.sampled_from(["strided", "fixed"]))
    integration = draw(st.sampled_from(["local", "long", "merged", "heads"]))
    return Sparse(
        heads=draw(HEADS if integration != "heads" else st.sampled_from([2, 4, 6])),
        head_dim=draw(st.none() | st.integers(1, 64)),
        key_dim=draw(st.none() | st.integers(1, 64)),
        causal=draw(st.none() | st.booleans()),
        projection_bias=draw(st.booleans()),
        pattern=pattern,
        stride=stride,
        summary=draw(st.integers(1, stride)) if pattern == "fixed" else None,
        integration=integration,
    )


CASE = MechanismCase(
    component=Sparse,
    examples=(
        Sparse(heads=2, pattern="fixed", stride=3, summary=2, causal=True),
        Sparse(heads=3, pattern="strided", stride=3, causal=True),
        Sparse(heads=1, head_dim=5, pattern="strided", stride=2, key_dim=3, projection_bias=False),
        Sparse(heads=2, key_dim=2, pattern="fixed", stride=3, summary=1, integration="heads", causal=True),
        Sparse(heads=2, pattern="strided", stride=4, integration="local"),
        Sparse(heads=2, pattern="strided", stride=3, integration="long", causal=True),
        Sparse(heads=2, pattern="fixed", stride=3, summary=2, integration="long"),
    ),
    components=components(),
    growth=lambda component: (Grid((6 * component.stride,)), Grid((12 * component.stride,))),
    grids=tuple(Grid((n,)) for n in (1, 4, 5, 12, 23)),
    sides=st.lists(st.integers(1, 40), min_size=1, max_size=1).map(tuple),
    length=8,
)
