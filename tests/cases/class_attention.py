"""Class attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, masked_attention
from xfcost.grid import Grid
from xfcost.mechanisms import ClassAttention
from xfcost.mechanisms.base import Place


def reference(page: ClassAttention, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Attention of all tokens to all tokens, as if nothing were known of class tokens; then the first rows of it."""
    q, k, v = (F.linear(x_BND, part.weight, part.bias) for part in (twin.q, twin.k, twin.v))
    everything = torch.ones(x_BND.shape[1], x_BND.shape[1], dtype=torch.bool)
    read = F.linear(masked_attention(q, k, v, page.heads, everything), twin.out.weight, twin.out.bias)
    return read[:, : place.grid.extra]


EXAMPLES = (
    ClassAttention(heads=2),
    ClassAttention(heads=3, projection_bias=False),
    ClassAttention(heads=1, head_dim=5),
)
# Nothing but the class token beside one place, oblong, prime; two and three extra tokens.
GRIDS = (
    Grid((1,), 1),
    Grid((1, 1), 1),
    Grid((5,), 1),
    Grid((1, 4), 2),
    Grid((7, 9), 1),
    Grid((13, 13), 3),
    Grid((2, 3, 4), 1),
)

CASE = MechanismCase(
    page=ClassAttention,
    examples=EXAMPLES,
    pages=st.builds(
        ClassAttention,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.just(value=False),
        projection_bias=st.booleans(),
    ),
    reference=reference,
    growth=lambda page: (Grid((6,), 1), Grid((12,), 1)),
    grids=GRIDS,
    class_token=True,
)
