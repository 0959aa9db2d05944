"""Funnel attention (Dai et al. 2020, §2.2 and appendix A.2.1), pair by pair; all tokens are of one type."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, thirds
from references.relative import encoding


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Queries are pooled, keys with them or not. A separate [CLS] is the token before the first pooled two."""
    pooled = pool(options, x)
    step = options.spacing
    here = [step * j for j in range(x.shape[1])]
    there = [2 * step * i - step * options.separate_cls for i in range(pooled.shape[1])]
    query_at = here if pooled.shape == x.shape else there
    key_at = here if options.pool_q_only else query_at
    q = linear(weights.q, pooled)
    k, v = thirds(weights.kv, x if options.pool_q_only else pooled, 2)
    heads = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        parts = q[..., mine], k[..., mine], v[..., mine]
        heads.append(head(options, weights.core, mine, parts, (query_at, key_at), place.dim))
    return linear(weights.out, torch.cat(heads, -1))


def pool(options: Options, x: Tensor) -> Tensor:
    tokens, cls = list(x.unbind(1)), int(options.separate_cls)
    if options.stride == 1 or len(tokens) <= 1 + cls:
        return x
    rest = tokens[cls : len(tokens) - (cls and options.truncate_seq)]
    pairs = [torch.stack(rest[at : at + 2]) for at in range(0, len(rest), 2)]
    return torch.stack(
        [*tokens[:cls], *(pair.mean(0) if options.pool == "mean" else pair.amax(0) for pair in pairs)], 1
    )


def head(
    options: Options,
    core: Weights,
    mine: Tensor,
    parts: tuple[Tensor, Tensor, Tensor],
    stands: tuple[list[int], list[int]],
    dim: int,
) -> Tensor:
    q, k, v = parts
    u, w = core.content_bias.weight[0, mine], core.position_bias.weight[0, mine]
    answers = []
    for i, at in enumerate(stands[0]):
        scores = []
        for j, other in enumerate(stands[1]):
            score = (q[:, i] + u) * k[:, j]
            if not (options.separate_cls and 0 in (i, j)):
                score = score + (q[:, i] + w) * (core.r.weight[mine] @ encoding(at - other, dim))
                if options.token_types:
                    score = score + (q[:, i] + core.type_bias.weight[0, mine]) * core.types.weight[1, mine]
            scores.append(score.sum(-1) / math.sqrt(len(mine)))
        answers.append(torch.einsum("bm,bmk->bk", torch.stack(scores, -1).softmax(-1), v))
    return torch.stack(answers, 1)
