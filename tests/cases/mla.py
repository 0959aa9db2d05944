"""Multi-head latent attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.mechanisms.mla import Mla


@st.composite
def components(draw: st.DrawFn) -> Mla:
    return Mla(
        heads=draw(HEADS),
        kv_rank=draw(st.integers(1, 40)),
        q_rank=draw(st.none() | st.integers(1, 40)),
        rope_dim=2 * draw(st.integers(1, 9)),
        head_dim=draw(st.none() | st.integers(1, 40)),
        value_dim=draw(st.none() | st.integers(1, 40)),
        causal=draw(st.none() | st.booleans()),
        rope_base=draw(st.sampled_from([10000.0, 50.0])),
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    component=Mla,
    examples=(
        Mla(heads=2, kv_rank=4, rope_dim=2),
        Mla(heads=3, kv_rank=5, rope_dim=4, q_rank=3, causal=True),
        Mla(heads=2, kv_rank=3, rope_dim=2, q_rank=4, head_dim=5, value_dim=3, causal=True, projection_bias=True),
        Mla(heads=1, kv_rank=7, rope_dim=6, value_dim=4, rope_base=50.0),
    ),
    components=components(),
)
