"""Blockwise local attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.blockwise import Blockwise


def growth(component: Blockwise) -> tuple[Grid, Grid]:
    """Whole blocks, three along each side at least, so that the one in the middle has all its memory."""
    rows, columns = component.block if isinstance(component.block, list) else (1, component.block)
    return Grid((4 * rows, 4 * columns)), Grid((8 * rows, 4 * columns))


@st.composite
def components(draw: st.DrawFn) -> Blockwise:
    margins = st.integers(0, 5)
    causal = draw(st.sampled_from([None, False, True]))
    flat = {"block": draw(st.integers(1, 9)), "before": draw(st.integers(0, 20))}
    on_a_grid = {
        "block": draw(st.lists(st.integers(1, 5), min_size=2, max_size=2)),
        "above": draw(margins),
        "beside": draw(margins),
    }
    if not causal:
        flat["after"] = draw(st.integers(0, 20))
        on_a_grid["below"] = draw(margins)
    return Blockwise(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        causal=causal,
        projection_bias=draw(st.booleans()),
        **draw(st.sampled_from([flat, on_a_grid])),
    )


CASE = MechanismCase(
    component=Blockwise,
    examples=(
        Blockwise(heads=2, block=4),
        Blockwise(heads=1, block=3, before=3, after=2, projection_bias=False),
        Blockwise(heads=3, block=4, before=6, causal=True),
        Blockwise(heads=2, block=[2, 3], above=2, beside=2, causal=True),
        Blockwise(heads=1, head_dim=5, block=[3, 2], above=1, below=2, beside=1),
    ),
    components=components(),
    growth=growth,
    grids=tuple(Grid(sides) for sides in [(1, 1), (1, 4), (3, 5), (4, 6), (7, 9)]),
    sides=st.lists(st.integers(1, 14), min_size=2, max_size=2).map(tuple),
    image=True,
)
