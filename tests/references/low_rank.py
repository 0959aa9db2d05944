"""Low-rank attention (Wang et al. 2020, equation 7): softmax(Q(EK)ᵀ/√K)FV, one head after the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    q, k, v = thirds(weights.qkv, x)
    answers = []
    for head, mine in enumerate(torch.arange(q.shape[-1]).chunk(options.heads)):
        e, f = projections(options, weights, head)
        assert e.shape == (place.total, options.rank)
        keys = sum(e[n][:, None] * k[:, n, None, mine] for n in range(place.total))
        values = sum(f[n][:, None] * v[:, n, None, mine] for n in range(place.total))
        scores = torch.einsum("bnk,brk->bnr", q[..., mine], keys) / math.sqrt(len(mine))
        answers.append(scores.softmax(-1) @ values)
    return linear(weights.out, torch.cat(answers, -1))


def projections(options: Options, weights: Weights, head: int) -> tuple[Tensor, Tensor]:
    """E and F of a head (§4, parameter sharing)."""
    if options.share == "key_value":
        return weights.projection.weight, weights.projection.weight
    both = weights.key_projection.weight, weights.value_projection.weight
    return (both[0][head], both[1][head]) if options.share == "none" else both
