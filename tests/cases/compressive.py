"""Compressive attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.mechanisms.compressive import Compressive

CASE = MechanismCase(
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
