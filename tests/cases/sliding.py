"""Sliding windows under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sliding import Sliding


@st.composite
def components(draw: st.DrawFn) -> Sliding:
    causal = draw(st.sampled_from([None, False, True]))
    heads, tokens = draw(HEADS), 0 if causal else draw(st.integers(0, 3))
    alone = not tokens and causal
    return Sliding(
        heads=heads,
        kv_heads=draw(st.none() | st.just(1)) if alone else None,
        position=draw(st.sampled_from(["none", "rope"])) if alone else "none",
        head_dim=draw(st.none() | st.integers(1, 64)),
        window=2 * draw(st.integers(1, 20)),
        dilation=draw(st.integers(1, 4)),
        global_tokens=tokens,
        global_projections=None if alone else draw(st.none() | st.booleans()),
        causal=causal,
        projection_bias=draw(st.booleans()),
    )


def whole_windows(component: Sliding) -> tuple[Grid, Grid]:
    whole = component.window * component.dilation
    return Grid((2 * whole,)), Grid((4 * whole,))


EXAMPLES = (
    Sliding(heads=2, window=4),
    Sliding(heads=2, window=4, causal=True),
    Sliding(heads=1, window=2, global_projections=True, head_dim=5, projection_bias=False),
    Sliding(heads=3, window=6, global_tokens=1),
    Sliding(heads=2, window=2, dilation=3, global_tokens=2, global_projections=False),
    Sliding(heads=1, window=4, dilation=2, causal=True),
    Sliding(heads=6, kv_heads=2, head_dim=2, window=6, causal=True, position="rope", projection_bias=False),
    Sliding(heads=3, kv_heads=1, window=2, dilation=2, causal=True),
    Sliding(heads=3, window=4, position="rope"),
)

CASE = MechanismCase(
    component=Sliding,
    examples=EXAMPLES,
    components=components(),
    growth=whole_windows,
    grids=(*SEQUENCES[1:], Grid((3, 5)), Grid((16,), 1)),
    # three global tokens need as many
    sides=st.lists(st.integers(2, 12), min_size=2, max_size=3).map(tuple),
    fused=False,
)
