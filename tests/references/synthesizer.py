"""Synthetic attention (Tay et al. 2021, §3): softmax(B)V, with a B that no key has a say in."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """One head and one token after the other; a causal token reads itself and those before it."""
    v = linear(weights.value, x)
    answers = []
    for head, mine in enumerate(torch.arange(v.shape[-1]).chunk(options.heads)):
        rows = []
        for token in range(place.total):
            logits = row(options, weights.core, x[:, token], head, token, place.total)
            last = token + 1 if options.causal else place.total
            rows.append(torch.einsum("bm,bmk->bk", logits[:, :last].softmax(-1), v[:, :last, mine]))
        answers.append(torch.stack(rows, 1))
    return linear(weights.out, torch.cat(answers, -1))


def row(options: Options, core: Weights, x: Tensor, head: int, token: int, n: int) -> Tensor:
    """(B, N): what one token gives to all before the softmax (equations 1 to 6)."""
    if options.form == "random":
        return core.synthesis.weight[head, token].expand(len(x), n)
    if options.form == "factorized_random":
        left, right = core.synthesis.left[head], core.synthesis.right[head]
        return torch.stack([(left[token] * right[other]).sum() for other in range(n)]).expand(len(x), n)
    hidden = linear(core.hidden, x).clamp(min=0)
    width = hidden.shape[-1] // options.heads
    hidden = hidden[:, head * width : (head + 1) * width]
    if options.form == "dense":
        return mapped(core.synthesis, hidden, head)
    a, b = mapped(core.factor_a, hidden, head), mapped(core.factor_b, hidden, head)
    assert a.shape[1] * b.shape[1] == n
    return torch.stack([a[:, math.floor(other / b.shape[1])] * b[:, other % b.shape[1]] for other in range(n)], 1)


def mapped(leaf: Weights, x: Tensor, head: int) -> Tensor:
    y = x @ leaf.weight[head]
    return y if leaf.bias is None else y + leaf.bias[head]
