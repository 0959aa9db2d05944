"""Sinkhorn attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import Sinkhorn
from xfcost.mechanisms.base import Place


def reference(page: Sinkhorn, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Head by head; keys and values beyond the last token are zeros to the sorting, and unread in their own block."""
    q, k, v = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    width = q.shape[-1] // page.heads
    heads = [[part[..., head * width : (head + 1) * width] for part in (q, k, v)] for head in range(page.heads)]
    nulls = [(None, None)] * page.heads
    if page.causal:
        nulls = list(zip(twin.null_keys.weight, twin.null_values.weight, strict=True))
    attend = causal_head if page.causal else free_head
    samples = [
        torch.stack([attend(page, *sample, *null) for sample in zip(*head, strict=True)])
        for head, null in zip(heads, nulls, strict=True)
    ]
    return F.linear(torch.cat(samples, dim=-1), twin.out.weight, twin.out.bias)


def blocks_of(page: Sinkhorn, x_NK: Tensor) -> list[Tensor]:
    """Whole blocks, zeros at the end."""
    missing = -len(x_NK) % page.block
    return list(torch.cat([x_NK, x_NK.new_zeros(missing, x_NK.shape[1])]).split(page.block))


def attended(q_K: Tensor, k_MK: Tensor, v_MK: Tensor) -> Tensor:
    return (k_MK @ q_K / len(q_K) ** 0.5).softmax(0) @ v_MK


def free_head(page: Sinkhorn, q: Tensor, k: Tensor, v: Tensor, *_: None) -> Tensor:
    qs, ks, vs = (blocks_of(page, part) for part in (q, k, v))
    scores = [[one.mean(0) @ other.mean(0) / q.shape[1] ** 0.5 for other in ks] for one in qs]
    order = torch.stack([torch.stack(row) for row in scores]).clamp(min=0) + 1e-6
    order = order ** (1 / page.temperature)
    for _ in range(page.iterations):
        order = order / order.sum(1, keepdim=True)
        order = order / order.sum(0, keepdim=True)
    sorted_k = [sum(order[u, w] * ks[w] for w in range(len(ks))) for u in range(len(ks))]
    sorted_v = [sum(order[u, w] * vs[w] for w in range(len(vs))) for u in range(len(vs))]
    answers = []
    for token in range(len(q)):
        mine = token // page.block
        if page.sortcut:
            keys, values = torch.cat(sorted_k[: page.sortcut]), torch.cat(sorted_v[: page.sortcut])
        else:
            own = slice(mine * page.block, (mine + 1) * page.block)
            keys, values = torch.cat([sorted_k[mine], k[own]]), torch.cat([sorted_v[mine], v[own]])
        answers.append(attended(q[token], keys, values))
    return torch.stack(answers)


def causal_head(page: Sinkhorn, q: Tensor, k: Tensor, v: Tensor, null_k: Tensor, null_v: Tensor) -> Tensor:
    ks, vs = blocks_of(page, k), blocks_of(page, v)
    answers = []
    for token in range(len(q)):
        mine, first = token // page.block, token // page.block * page.block
        pooled = q[: first + 1].mean(0)
        fits = [0 * pooled[0], *(pooled @ ks[before].mean(0) / q.shape[1] ** 0.5 for before in range(mine))]
        order = (torch.stack(fits) / page.temperature).softmax(0)
        sorted_k = order[0] * null_k + sum(order[1 + before] * ks[before] for before in range(mine))
        sorted_v = order[0] * null_v + sum(order[1 + before] * vs[before] for before in range(mine))
        keys = torch.cat([sorted_k.expand(page.block, -1), k[first : token + 1]])
        values = torch.cat([sorted_v.expand(page.block, -1), v[first : token + 1]])
        answers.append(attended(q[token], keys, values))
    return torch.stack(answers)


@st.composite
def pages(draw: st.DrawFn) -> Sinkhorn:
    causal = draw(st.none() | st.booleans())
    return Sinkhorn(
        heads=draw(HEADS),
        block=draw(st.integers(1, 9)),
        iterations=draw(st.integers(0, 9)),
        temperature=draw(st.floats(0.1, 2)),
        sortcut=None if causal else draw(st.none() | st.integers(1, 4)),
        causal=causal,
        projection_bias=draw(st.booleans()),
    )


EXAMPLES = (
    Sinkhorn(heads=2, block=4),
    Sinkhorn(heads=3, block=3, iterations=2, temperature=0.5, projection_bias=False),
    Sinkhorn(heads=2, head_dim=4, block=4, causal=True),
    Sinkhorn(heads=1, block=2, iterations=1, sortcut=2),
)

CASE = MechanismCase(
    rows=Rows(
        masks=frozenset(("mask",)),
        in_tokens=frozenset(
            (
                "sort_scores",
                "sort_logits",
                "balance",
                "reorder",
            )
        ),
        fewer={"pool_queries": lambda page, place: page.block - 1}
        | dict.fromkeys(("sort_logits", "balance", "reorder"), lambda page, place: page.block if page.causal else 0),
        # fused, the mask holds no sorted block's content
        left_out=lambda page: frozenset(("mask",)),
    ),
    page=Sinkhorn,
    examples=EXAMPLES,
    pages=pages(),
    reference=reference,
    growth=lambda page: (Grid((4 * page.block,)), Grid((8 * page.block,))),
    grids=(Grid((1,)), Grid((2,)), Grid((5,)), Grid((3, 4)), Grid((13,)), Grid((7,), 1)),
)
