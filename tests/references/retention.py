"""Retention in its three forms (Sun et al. 2023, equations 5 and 8): one plain quadratic sum."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.full import turned
from references.plain import Options, Place, Weights, linear, silu


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Σ γ^(n-m) (q_n·k_m) v_m, normed head by head, gated."""
    d, heads = place.dim, options.heads
    width, values = d // heads, (options.value_dim or 2 * d) // heads
    wide, answers = linear(weights.qkv, x), []
    for head in range(heads):
        q = turned(wide[..., head * width : (head + 1) * width], width, 10000.0)
        k = turned(wide[..., d + head * width : d + (head + 1) * width], width, 10000.0)
        v = wide[..., 2 * d + head * values : 2 * d + (head + 1) * values]
        gamma, tokens = 1 - 2.0 ** (-5 - head), []
        for n in range(place.total):
            terms = [
                gamma ** (n - m) * (q[:, n] * k[:, m]).sum(-1, keepdim=True) / math.sqrt(width) * v[:, m]
                for m in range(n + 1)
            ]
            tokens.append(sum(terms))
        answers.append(normed(options, torch.stack(tokens, 1)))
    return linear(weights.out, torch.cat(answers, -1) * silu(linear(weights.gate_proj, x)))


def normed(options: Options, y: Tensor) -> Tensor:
    """Without learned numbers, ε = 10⁻⁵ and, uncentred, 10⁻⁶ as in torchscale."""
    if options.norm == "layer_norm":
        y = y - y.mean(-1, keepdim=True)
    return y / (y.square().mean(-1, keepdim=True) + (1e-5 if options.norm == "layer_norm" else 1e-6)).sqrt()
