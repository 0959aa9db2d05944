"""Kernel attention: Σ φ(q)·φ(k) v / Σ φ(q)·φ(k), by the whole matrix (Katharopoulos et al. 2020, equation 4)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    q, k, v = thirds(weights.qkv, x)
    tokens, elu = place.total, options.features.kind == "elu_plus_one"
    reads = torch.tensor([[float(m <= n or not options.causal) for m in range(tokens)] for n in range(tokens)])
    answers = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        asked = features(options, weights, q[..., mine], queries=True)
        known = features(options, weights, k[..., mine], queries=False)
        given = torch.einsum("bnf,bmf->bnm", asked, known) * reads
        answers.append(given @ v[..., mine] / (given.sum(-1, keepdim=True) + (1e-6 if elu else 0)))
    return linear(weights.out, torch.cat(answers, -1))


def features(options: Options, weights: Weights, x: Tensor, *, queries: bool) -> Tensor:
    """elu(x) + 1; or positive random features (Choromanski et al. 2021, lemma 1), as the public code keeps them."""
    if options.features.kind == "elu_plus_one":
        return torch.where(x > 0, x + 1, x.exp())
    x = x / x.shape[-1] ** 0.25
    dots = torch.einsum("fk,bnk->bnf", weights.project.features_FK, x)
    if options.features.function == "relu":
        return dots.clamp(min=0) + 1e-3
    if queries:
        most = dots.amax(-1, keepdim=True)
    else:
        most = torch.zeros(()) if options.causal else dots.amax((1, 2), keepdim=True)
    exponent = dots - x.square().sum(-1, keepdim=True) / 2 - most.detach()
    return (exponent.exp() + 1e-4) / math.sqrt(options.features.count)
