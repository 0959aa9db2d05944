"""Cross-attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, masked_attention, readable
from xfcost.mechanisms import Cross
from xfcost.mechanisms.base import Place


def reference(page: Cross, place: Place, twin: nn.Module, x_BND: Tensor, memory_BMD: Tensor) -> Tensor:
    q = F.linear(x_BND, twin.q.weight, twin.q.bias)
    keys = page.heads * (page.head_dim or place.dim // page.heads)
    k, v = F.linear(memory_BMD, twin.kv.weight, twin.kv.bias).tensor_split([keys], dim=-1)
    if not page.scaled:
        q = q * (q.shape[-1] // page.heads) ** 0.5
    attended = masked_attention(q, k, v, page.heads, readable(page, place.grid, place.memory))
    return F.linear(attended, twin.out.weight, twin.out.bias)


EXAMPLES = (
    Cross(heads=2),
    Cross(heads=3, head_dim=4, projection_bias=False),
    Cross(heads=2, head_dim=5, projection_bias=False, scaled=False),
    Cross(heads=3, value_dim=5),
    Cross(heads=2, head_dim=4, value_dim=1, projection_bias=False),
)

CASE = MechanismCase(
    page=Cross,
    examples=EXAMPLES,
    pages=st.builds(
        Cross,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        value_dim=st.none() | st.integers(1, 64),
        projection_bias=st.booleans(),
        scaled=st.booleans(),
    ),
    reference=reference,
    memory=True,
    symbolic=EXAMPLES,
)
