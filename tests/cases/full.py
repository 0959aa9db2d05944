"""Full attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, masked_attention, readable
from xfcost.mechanisms import Full
from xfcost.mechanisms.base import Place


def reference(page: Full, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    q, k, v = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    attended = masked_attention(q, k, v, page.heads, readable(page, place.grid))
    return F.linear(attended, twin.out.weight, twin.out.bias) if page.output_projection else attended


EXAMPLES = (
    Full(heads=2),
    Full(heads=3, causal=True),
    Full(heads=1, head_dim=5, projection_bias=False),
    Full(heads=2, output_projection=False),
)

CASE = MechanismCase(
    page=Full,
    examples=EXAMPLES,
    pages=st.builds(
        Full,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.booleans(),
        projection_bias=st.booleans(),
    ),
    reference=reference,
    symbolic=EXAMPLES,
)
