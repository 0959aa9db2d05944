"""Full attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.formulas.position_buckets import Buckets
from xfcost.mechanisms.full import Full

PLAIN = (
    Full(heads=2),
    Full(heads=3, causal=True),
    Full(heads=1, head_dim=5, projection_bias=False),
    Full(heads=2, output_projection=False),
    Full(heads=2, projection_bias=False, output_bias=True),
    Full(heads=6, kv_heads=2, scaled=False),
    Full(heads=3, kv_heads=1, causal=True, projection_bias=False),
    Full(heads=3, value_dim=5),
    Full(heads=3, head_dim=4, value_dim=2, causal=True),
    Full(heads=6, kv_heads=2, value_dim=3, causal=True, output_bias=False),
)
TALKING = (  # a linear map of n·n pairs has ⌊n²/n⌋ rows: no closed form of torch's
    Full(heads=3, talking_heads=True),
    Full(heads=2, head_dim=4, talking_heads=True, position="rope", projection_bias=False),
    Full(heads=3, value_dim=4, talking_heads=True),
)
# Their tables are as long as the input.
POSITIONED = (
    Full(heads=3, position="rope"),
    Full(heads=3, kv_heads=1, causal=True, position="rope", output_bias=False, head_dim=4),
    Full(heads=4, head_dim=4, kv_heads=2, causal=True, position="rope", rope_base=50.0),
    Full(heads=4, head_dim=4, value_dim=3, kv_heads=2, causal=True, position="rope"),
    Full(heads=6, kv_heads=3, causal=True, position="alibi"),
    Full(heads=2, value_dim=4, causal=True, position="alibi"),
    Full(heads=2, bias=Buckets(count=8, distance=20), scaled=False),
    Full(heads=4, kv_heads=2, head_dim=3, causal=True, bias=Buckets(count=6, distance=9)),
)


@st.composite
def components(draw: st.DrawFn) -> Full:
    heads = draw(HEADS)
    causal = draw(st.none() | st.booleans())
    position = draw(st.sampled_from(["none", "rope", *(["alibi"] if causal else [])]))
    count = draw(st.integers(4, 40))
    biased = position != "alibi" and draw(st.booleans())
    if not causal and draw(st.booleans()):
        values = draw(st.none() | st.integers(1, 64))
        return Full(heads=heads, causal=causal, position=position, talking_heads=True, value_dim=values)
    return Full(
        heads=heads,
        kv_heads=draw(st.none() | st.sampled_from([few for few in range(1, heads + 1) if heads % few == 0])),
        head_dim=draw(st.none() | st.integers(1, 64)),
        value_dim=draw(st.none() | st.integers(1, 64)),
        causal=causal,
        position=position,
        rope_base=draw(st.sampled_from([10000.0, 500000.0])),
        scaled=draw(st.booleans()),
        bias=Buckets(count=count, distance=draw(st.integers(count, 300))) if biased else None,
        projection_bias=draw(st.booleans()),
        output_bias=draw(st.none() | st.booleans()),
    )


CASE = MechanismCase(
    component=Full,
    examples=(*PLAIN, *TALKING, *POSITIONED),
    components=components(),
    symbolic=PLAIN,
)
