"""Funnel attention under the contract."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, MechanismCase, Rows
from cases.relative import encoding
from xfcost.mechanisms import Funnel
from xfcost.mechanisms.base import Place


def reference(page: Funnel, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Dai et al. 2020, appendix A.2.1, pair by pair; all tokens are of one type."""
    pooled = plain_pool(page, x_BND)
    shortened = pooled.shape != x_BND.shape
    source = x_BND if page.pool_q_only else pooled
    # Where queries and keys stand. A separate [CLS] is the token before the first two that are pooled to one.
    here = [page.spacing * j for j in range(x_BND.shape[1])]
    there = [2 * page.spacing * i - page.spacing * page.separate_cls for i in range(pooled.shape[1])]
    query_at = there if shortened else here
    key_at = here if page.pool_q_only else query_at
    q = F.linear(pooled, twin.q.weight)
    k, v = F.linear(source, twin.kv.weight, twin.kv.bias).chunk(2, dim=-1)
    heads = [
        plain_head(page, twin, columns, (q[..., columns], k[..., columns], v[..., columns]), (query_at, key_at))
        for columns in torch.arange(q.shape[-1]).chunk(page.heads)
    ]
    return F.linear(torch.cat(heads, dim=-1), twin.out.weight, twin.out.bias)


def plain_pool(page: Funnel, x_BND: Tensor) -> Tensor:
    tokens = list(x_BND.unbind(1))
    if page.stride == 1 or len(tokens) <= 1 + page.separate_cls:
        return x_BND
    first, rest = (tokens[:1], tokens[1:]) if page.separate_cls else ([], tokens)
    rest = rest[:-1] if page.separate_cls and page.truncate_seq else rest
    groups = [torch.stack(rest[at : at + 2]) for at in range(0, len(rest), 2)]
    return torch.stack([*first, *(pair.mean(0) if page.pool == "mean" else pair.amax(0) for pair in groups)], dim=1)


def plain_head(
    page: Funnel,
    twin: nn.Module,
    columns: Tensor,
    parts: tuple[Tensor, Tensor, Tensor],
    stands: tuple[list[int], list[int]],
) -> Tensor:
    q_BPK, k_BMK, v_BMK = parts
    u, w = twin.core.content_bias.weight[0, columns], twin.core.position_bias.weight[0, columns]
    answers = []
    for i, at in enumerate(stands[0]):
        scores = []
        for j, other in enumerate(stands[1]):
            score = (q_BPK[:, i] + u) * k_BMK[:, j]
            if not (page.separate_cls and (i == 0 or j == 0)):
                r_K = twin.core.r.weight[columns] @ encoding(at - other, twin.q.weight)
                score = score + (q_BPK[:, i] + w) * r_K
                if page.token_types:
                    same_K = twin.core.types.weight[1, columns]
                    score = score + (q_BPK[:, i] + twin.core.type_bias.weight[0, columns]) * same_K
            scores.append(score.sum(-1) / math.sqrt(len(columns)))
        answers.append(torch.einsum("bm,bmk->bk", torch.stack(scores, dim=-1).softmax(-1), v_BMK))
    return torch.stack(answers, dim=1)


CASE = MechanismCase(
    rows=Rows(
        positional=lambda page: frozenset(
            (
                "position_scores",
                "position_shift",
                "type_pick",
                "type_add",
                "cls_mask",
            )
        ),
        uncounted=frozenset(("position_scores",)),
    ),
    page=Funnel,
    examples=(
        Funnel(heads=2, token_types=True),
        Funnel(heads=3, stride=2, spacing=2),
        Funnel(heads=1, head_dim=4, stride=2, truncate_seq=False, token_types=True, pool="max", projection_bias=False),
        Funnel(heads=2, stride=2, pool_q_only=False),
        Funnel(heads=2, stride=2, separate_cls=False),
    ),
    pages=st.builds(
        Funnel,
        heads=HEADS,
        stride=st.sampled_from([1, 2]),
        pool=st.sampled_from(["mean", "max"]),
        pool_q_only=st.booleans(),
        separate_cls=st.booleans(),
        truncate_seq=st.booleans(),
        token_types=st.booleans(),
        spacing=st.integers(1, 4),
        projection_bias=st.booleans(),
    ),
    reference=reference,
    grids=SEQUENCES[:-1],
    sides=st.integers(1, 40).map(lambda n: (n,)),
)
