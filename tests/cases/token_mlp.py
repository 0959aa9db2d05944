"""MLP-Mixer's token mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from xfcost.mechanisms.token_mlp import TokenMlp

CASE = MechanismCase(
    component=TokenMlp,
    examples=(TokenMlp(hidden=4), TokenMlp(hidden=1, act="silu"), TokenMlp(hidden=7, bias=False)),
    components=st.builds(
        TokenMlp, hidden=st.integers(1, 99), act=st.sampled_from(["gelu", "silu"]), bias=st.booleans()
    ),
    fused=False,
    per_token=False,
)
