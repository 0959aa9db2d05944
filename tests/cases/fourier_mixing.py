"""FNet's token mixing under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from xfcost.mechanisms.fourier_mixing import FourierMixing

CASE = MechanismCase(
    component=FourierMixing,
    examples=(FourierMixing(),),
    components=st.builds(FourierMixing),
    fused=False,
    per_token=False,
)
