"""SAGAN's self-attention (Zhang et al. 2019, equations 1 to 3), position by position; no score is scaled."""

from __future__ import annotations

import torch
from torch import Tensor

from references.non_local import pooled
from references.plain import Options, Place, Weights, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    f, g, h = (linear(leaf, x) for leaf in (weights.f, weights.g, weights.h))
    assert f.shape[-1] == place.dim // options.reduction
    g, h = (pooled(options.pool, place.sides, part) for part in (g, h))
    answers = []
    for position in range(place.total):
        scores = torch.einsum("bk,bmk->bm", f[:, position], g)
        answers.append(torch.einsum("bm,bmv->bv", scores.softmax(-1), h))
    o = torch.stack(answers, 1)
    o = linear(weights.v, o) if options.output_projection else o
    return weights.gamma.weight * o
