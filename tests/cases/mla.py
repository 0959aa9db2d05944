"""Multi-head latent attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, Rows, masked_attention, readable
from cases.full import turned
from xfcost.mechanisms import Mla
from xfcost.mechanisms.base import Place


def root_mean_square(x_BNC: Tensor, gain_C: Tensor) -> Tensor:
    return x_BNC / (x_BNC.pow(2).mean(-1, keepdim=True) + torch.finfo(x_BNC.dtype).eps).sqrt() * gain_C


def reference(page: Mla, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Head by head: c = x W_D, k = [c W_K, turned(x W_R)], v = c W_V, q likewise (DeepSeek-V2, equations 9 to 19)."""
    width = place.dim // page.heads if page.head_dim is None else page.head_dim
    values = width if page.value_dim is None else page.value_dim
    if page.q_rank is None:
        queries = F.linear(x_BND, twin.q.weight)
    else:
        down = F.linear(x_BND, twin.q_down.weight, twin.q_down.bias)
        queries = F.linear(root_mean_square(down, twin.q_norm.weight), twin.q_up.weight)
    down = F.linear(x_BND, twin.kv_down.weight, twin.kv_down.bias)
    latent, shared = down[..., : page.kv_rank], turned(down[..., page.kv_rank :], page.rope_dim, page.rope_base)
    latent = root_mean_square(latent, twin.kv_norm.weight)
    q, k, v = [], [], []
    for head in range(page.heads):
        mine = queries[..., head * (width + page.rope_dim) : (head + 1) * (width + page.rope_dim)]
        q += [mine[..., :width], turned(mine[..., width:], page.rope_dim, page.rope_base)]
        both = F.linear(latent, twin.kv_up.weight[head * (width + values) : (head + 1) * (width + values)])
        k += [both[..., :width], shared]
        v.append(both[..., width:])
    joined = [torch.cat(parts, dim=-1) for parts in (q, k, v)]
    attended = masked_attention(*joined, page.heads, readable(page, place.grid))
    return F.linear(attended, twin.out.weight, twin.out.bias)


@st.composite
def pages(draw: st.DrawFn) -> Mla:
    return Mla(
        heads=draw(HEADS),
        kv_rank=draw(st.integers(1, 40)),
        q_rank=draw(st.none() | st.integers(1, 40)),
        rope_dim=2 * draw(st.integers(1, 9)),
        head_dim=draw(st.none() | st.integers(1, 40)),
        value_dim=draw(st.none() | st.integers(1, 40)),
        causal=draw(st.none() | st.booleans()),
        rope_base=draw(st.sampled_from([10000.0, 50.0])),
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    rows=Rows(masks=frozenset(("mask",))),
    page=Mla,
    examples=(
        Mla(heads=2, kv_rank=4, rope_dim=2),
        Mla(heads=3, kv_rank=5, rope_dim=4, q_rank=3, causal=True),
        Mla(heads=2, kv_rank=3, rope_dim=2, q_rank=4, head_dim=5, value_dim=3, causal=True, projection_bias=True),
        Mla(heads=1, kv_rank=7, rope_dim=6, value_dim=4, rope_base=50.0),
    ),
    pages=pages(),
    reference=reference,
)
