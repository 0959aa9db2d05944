"""ResMLP's token mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from xfcost.mechanisms.token_linear import TokenLinear

CASE = MechanismCase(
    component=TokenLinear,
    examples=(TokenLinear(), TokenLinear(bias=False)),
    components=st.builds(TokenLinear, bias=st.booleans()),
    fused=False,
    per_token=False,
)
