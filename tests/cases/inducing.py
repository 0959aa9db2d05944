"""Attention through inducing points under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.mechanisms.inducing import Inducing

EXAMPLES = (
    Inducing(heads=2, points=3),
    Inducing(heads=3, points=1, norm="none", output_projection=False),
    Inducing(heads=1, points=4, induce="attention", head_dim=5, projection_bias=False),
)

CASE = MechanismCase(
    component=Inducing,
    examples=EXAMPLES,
    components=st.builds(
        Inducing,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.just(value=False),
        projection_bias=st.booleans(),
        points=st.integers(1, 99),
        induce=st.sampled_from(["mab", "attention"]),
        norm=st.sampled_from(["layer_norm", "none"]),
    ),
    symbolic=EXAMPLES,
)
