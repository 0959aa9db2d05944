"""Mamba-2 (Dao and Gu 2024, equation 2 with A a number per head): h_t = exp(Δ A) h + Δ u⊗B, y = C·h."""

from __future__ import annotations

import torch
from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights, linear, silu


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    inner, wide, state = options.expand * place.dim, options.head_dim, options.state
    heads, mixed = inner // wide, options.groups * state
    z, entering, step = linear(weights.in_proj, x).split([inner, inner + 2 * mixed, heads], -1)
    entering = silu(convolved(entering, (place.total,), weights.conv, groups=entering.shape[-1], causal=True))
    u, b, c = entering.split([inner, mixed, mixed], -1)
    step = (1 + (step + weights.step.bias).exp()).log()
    states = [torch.zeros(len(x), wide, state, dtype=x.dtype) for _ in range(heads)]
    tokens = []
    for token in range(place.total):
        answers = []
        for head in range(heads):
            group = head * options.groups // heads
            mine, numbers = slice(head * wide, (head + 1) * wide), slice(group * state, (group + 1) * state)
            dt, now = step[:, token, head, None, None], u[:, token, mine, None]
            kept = (-dt * weights.decay.log[head].exp()).exp()
            states[head] = kept * states[head] + dt * now * b[:, token, None, numbers]
            read = (states[head] * c[:, token, None, numbers]).sum(-1)
            answers.append(read + weights.skip.weight[head] * now.squeeze(-1))
        tokens.append(torch.cat(answers, -1))
    y = torch.stack(tokens, 1) * silu(z)
    parts = [part / (part.square().mean(-1, keepdim=True) + 1e-5).sqrt() for part in y.chunk(options.groups, -1)]
    return linear(weights.out_proj, torch.cat(parts, -1) * weights.norm.weight)
