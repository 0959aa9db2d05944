"""Funnel attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase
from xfcost.mechanisms.funnel import Funnel

CASE = MechanismCase(
    component=Funnel,
    examples=(
        Funnel(heads=2, token_types=True),
        Funnel(heads=3, stride=2, spacing=2),
        Funnel(heads=1, head_dim=4, stride=2, truncate_seq=False, token_types=True, pool="max", projection_bias=False),
        Funnel(heads=2, stride=2, pool_q_only=False),
        Funnel(heads=2, stride=2, separate_cls=False),
    ),
    components=st.builds(
        Funnel,
        heads=HEADS,
        stride=st.sampled_from([1, 2]),
        pool=st.sampled_from(["mean", "max"]),
        pool_q_only=st.booleans(),
        separate_cls=st.booleans(),
        truncate_seq=st.booleans(),
        token_types=st.booleans(),
        spacing=st.integers(1, 4),
        projection_bias=st.booleans(),
    ),
    grids=SEQUENCES[:-1],
    sides=st.integers(1, 40).map(lambda n: (n,)),
)
