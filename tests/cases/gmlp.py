"""gMLP's block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import MechanismCase
from xfcost.mechanisms.gmlp import Gmlp

CASE = MechanismCase(
    component=Gmlp,
    examples=(Gmlp(), Gmlp(ratio=1, norm="none"), Gmlp(hidden=4), Gmlp(hidden=10, act="silu")),
    components=st.one_of(
        st.builds(Gmlp, ratio=st.sampled_from([1, 2, 6]), act=st.sampled_from(["gelu", "silu"])),
        st.builds(Gmlp, hidden=st.integers(1, 40).map(lambda half: 2 * half), norm=st.sampled_from(["affine", "none"])),
    ),
    fused=False,
)
