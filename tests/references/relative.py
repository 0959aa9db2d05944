"""Relative attention with a memory (Dai et al. 2019, §3.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """With the memory that stands in the module; nothing is learned through it."""
    return with_memory(options, weights, x, weights.memory_1PD.expand(len(x), -1, -1))


def with_memory(options: Options, weights: Weights, x: Tensor, memory: Tensor) -> Tensor:
    """Term by term: A = q·k + q·W_R R + u·k + v·W_R R, with R of the distance i - j."""
    past, tokens = memory.shape[1], x.shape[1]
    q = linear(weights.q, x)
    k, v = thirds(weights.kv, torch.cat([memory, x], 1), 2)
    u, w = weights.core.content_bias.weight[0], weights.core.position_bias.weight[0]
    heads = []
    for mine in torch.arange(q.shape[-1]).chunk(options.heads):
        rows = []
        for i in range(tokens):
            keys = list(range(past + i + 1 if options.causal else past + tokens))
            r = torch.stack([encoding(past + i - j, x.shape[-1]) for j in keys]) @ weights.core.r.weight[mine].T
            here, there = q[:, i, mine], k[:, keys][..., mine]
            content = torch.einsum("bk,bmk->bm", here, there) + there @ u[mine]
            position = here @ r.T + r @ w[mine]
            given = ((content + position) / math.sqrt(len(mine))).softmax(-1)
            rows.append(torch.einsum("bm,bmk->bk", given, v[:, keys][..., mine]))
        heads.append(torch.stack(rows, 1))
    return linear(weights.out, torch.cat(heads, -1))


def encoding(distance: int, width: int) -> Tensor:
    """sin and cos of distance/10000^(2i/d), in single precision as a model holds it."""
    angles = [distance / 10000 ** (2 * i / width) for i in range((width + 1) // 2)]
    waves = [wave(angle) for wave in (math.sin, math.cos) for angle in angles]
    return torch.tensor(waves[:width], dtype=torch.float32).double()
