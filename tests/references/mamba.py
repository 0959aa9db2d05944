"""Mamba (Gu and Dao 2023, algorithm 2): its convolution tap by tap, its scan number by number of the state."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights, linear, silu


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """h_t = exp(Δ A) h + Δ B u, as recurrence (2a), and y = C h + D u."""
    inner = options.expand * place.dim
    rank = options.rank or math.ceil(place.dim / 16)
    wide = linear(weights.in_proj, x)
    u, z = wide[..., :inner], wide[..., inner:]
    u = silu(convolved(u, (place.total,), weights.conv, groups=inner, causal=True))
    projected = linear(weights.x_proj, u)
    step = (1 + linear(weights.dt_proj, projected[..., :rank]).exp()).log()
    b, c = projected[..., rank : rank + options.state], projected[..., rank + options.state :]
    a = -weights.decay.log.exp()
    states = [torch.zeros_like(u[:, 0]) for _ in range(options.state)]
    answers = []
    for token in range(place.total):
        dt, now = step[:, token], u[:, token]
        for s in range(options.state):
            states[s] = (dt * a[:, s]).exp() * states[s] + dt * b[:, token, s, None] * now
        y = sum(c[:, token, s, None] * states[s] for s in range(options.state)) + weights.skip.weight * now
        answers.append(y * silu(z[:, token]))
    return linear(weights.out_proj, torch.stack(answers, 1))
