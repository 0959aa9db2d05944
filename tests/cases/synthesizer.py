"""Synthetic attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.synthesizer import Synthesizer

# 24 before 13: of a prime number of tokens both factors' orders are one.
GRIDS = tuple(Grid((n,)) for n in (1, 2, 5, 8, 24, 13))
EXAMPLES = (
    Synthesizer(heads=2),
    Synthesizer(heads=3, form="factorized_dense", causal=True, projection_bias=False),
    Synthesizer(heads=2, form="random", causal=True, head_dim=5),
    Synthesizer(heads=2, form="random", trainable=False),
    Synthesizer(heads=2, form="factorized_random", rank=3),
)


@st.composite
def components(draw: st.DrawFn) -> Synthesizer:
    form = draw(st.sampled_from(["dense", "random", "factorized_dense", "factorized_random"]))
    return Synthesizer(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        causal=draw(st.none() | st.booleans()),
        form=form,
        trainable=draw(st.booleans()) if form == "random" else True,
        factor=draw(st.sampled_from([None, 1])) if form == "factorized_dense" else None,
        rank=draw(st.none() | st.integers(1, 9)) if form == "factorized_random" else None,
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    component=Synthesizer,
    examples=EXAMPLES,
    components=components(),
    # Squares, whose root divides them.
    growth=lambda component: (
        (Grid((4, 4)), Grid((8, 8))) if component.form == "factorized_dense" else (Grid((6,)), Grid((12,)))
    ),
    grids=GRIDS,
    fused=False,
)
