"""Window attention under the contract."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from cases.base import GRIDS, HEADS, VOLUME, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.window import Window


def kept(grid: Grid, padded: Grid) -> list[int]:
    """Where the tokens of `grid` stand on `padded`."""
    places = itertools.product(*(range(side) for side in padded.sides))
    return [number for number, place in enumerate(places) if all(a < b for a, b in zip(place, grid.sides, strict=True))]


@st.composite
def components(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 9))
    biased = draw(st.booleans())
    return Window(
        heads=draw(HEADS),
        size=size,
        shift=draw(st.integers(0, size - 1)),
        score=draw(st.sampled_from(["dot", "cosine"])),
        bias=draw(st.sampled_from(["relative", "log_cpb", "none"])),
        projection_bias=biased,
        key_bias=draw(st.booleans()) or not biased,
        output_bias=draw(st.none() | st.booleans()),
    )


CASE = MechanismCase(
    component=Window,
    examples=(
        Window(heads=2, size=3),
        Window(heads=3, size=4, shift=1, bias="none"),
        Window(heads=2, size=7, shift=3),
        Window(heads=1, size=2, shift=1, projection_bias=False),
        Window(heads=2, size=3, projection_bias=False, output_bias=True),
        Window(heads=3, size=4, shift=2, score="cosine", bias="log_cpb", key_bias=False),
        Window(heads=2, size=3, score="cosine", bias="none"),
    ),
    components=components(),
    growth=lambda component: (Grid((2 * component.size, component.size)), Grid((4 * component.size, component.size))),
    grids=(*GRIDS, VOLUME),
    image=True,
)
