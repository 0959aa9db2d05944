"""Compressive attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase, Rows
from xfcost.formulas.component import Place
from xfcost.mechanisms.compressive import Compressive
from xfcost.torch_models.mechanisms.compressive import Past


def past(component: Compressive, place: Place) -> tuple[Past]:
    """The compressed memory, what the segment before evicted, and the memory."""
    lengths = (component.compressed_memory, place.grid.total, component.past - component.compressed_memory)
    return (Past(*(torch.zeros(1, length, place.dim) for length in lengths)),)


CASE = MechanismCase(
    rows=Rows(
        positional=lambda component: frozenset(
            (
                "position_scores",
                "position_shift",
            )
        ),
        masks=frozenset(("mask",)),
        past=past,
        more={"position_scores": lambda component, place: 0 if component.causal else place.grid.total - 1},
    ),
    component=Compressive,
    examples=(
        Compressive(heads=2, causal=True, memory=4, compressed_memory=3, compression=2),
        Compressive(heads=3, causal=True, compressed_memory=2, compression=3, function="mean"),
        Compressive(heads=1, memory=2, compressed_memory=5, compression=1, function="max", projection_bias=True),
    ),
    components=st.builds(
        Compressive,
        heads=HEADS,
        causal=st.none() | st.booleans(),
        memory=st.integers(0, 9),
        compressed_memory=st.integers(1, 9),
        compression=st.integers(1, 5),
        function=st.sampled_from(["conv", "mean", "max"]),
    ),
    grids=SEQUENCES[:-1],
)
