"""MLP-Mixer's and ResMLP's token mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from xfcost.mechanisms import TokenLinear, TokenMlp

CASES = [
    MechanismCase(
        component=TokenMlp,
        examples=(TokenMlp(hidden=4), TokenMlp(hidden=1, act="silu"), TokenMlp(hidden=7, bias=False)),
        components=st.builds(
            TokenMlp, hidden=st.integers(1, 99), act=st.sampled_from(["gelu", "silu"]), bias=st.booleans()
        ),
        fused=False,
        per_token=False,
    ),
    MechanismCase(
        component=TokenLinear,
        examples=(TokenLinear(), TokenLinear(bias=False)),
        components=st.builds(TokenLinear, bias=st.booleans()),
        fused=False,
        per_token=False,
    ),
]
