"""Full attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, masked_attention, readable
from xfcost.mechanisms import Full
from xfcost.mechanisms.base import Place


def reference(page: Full, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    q, k, v = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    may_read = readable(page, place.grid)
    if page.talking_heads:
        attended = talking(page, twin.core, (q, k, v), may_read)
    else:
        attended = masked_attention(q, k, v, page.heads, may_read)
    return F.linear(attended, twin.out.weight, twin.out.bias) if page.output_projection else attended


def talking(page: Full, core: nn.Module, parts: tuple[Tensor, ...], may_read_NN: Tensor) -> Tensor:
    """Every head's scores are a sum of all heads' with P_l, its weights one with P_w (Shazeer et al. 2020, §2)."""
    heads = range(page.heads)
    q, k, v = (part.chunk(page.heads, dim=-1) for part in parts)
    scores = [torch.einsum("bnk,bmk->bnm", q[h], k[h]) / q[h].shape[-1] ** 0.5 for h in heads]
    mixed = [sum(core.proj_l.weight[i, h] * scores[h] for h in heads) + core.proj_l.bias[i] for i in heads]
    weights = [one.masked_fill(~may_read_NN, -torch.inf).softmax(-1) for one in mixed]
    given = [sum(core.proj_w.weight[i, h] * weights[h] for h in heads) + core.proj_w.bias[i] for i in heads]
    return torch.cat([given[h] @ v[h] for h in heads], dim=-1)


EXAMPLES = (
    Full(heads=2),
    Full(heads=3, causal=True),
    Full(heads=1, head_dim=5, projection_bias=False),
    Full(heads=2, output_projection=False),
    Full(heads=3, talking_heads=True),
    Full(heads=2, head_dim=4, talking_heads=True, projection_bias=False),
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
        talking_heads=st.booleans(),
    ).filter(lambda page: not (page.causal and page.talking_heads)),
    reference=reference,
    symbolic=tuple(page for page in EXAMPLES if not page.talking_heads),  # a linear map of n·n pairs has ⌊n²/n⌋ rows
)
