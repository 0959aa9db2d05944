"""Sinkhorn attention (Tay et al. 2020, §3), head by head and token by token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Keys and values beyond the last token are zeros to the sorting, and unread in their own block."""
    q, k, v = thirds(weights.qkv, x)
    heads = []
    for head, mine in enumerate(torch.arange(q.shape[-1]).chunk(options.heads)):
        samples = zip(*(part[..., mine] for part in (q, k, v)), strict=True)
        if options.causal:
            nulls = weights.null_keys.weight[head], weights.null_values.weight[head]
            heads.append(torch.stack([causal(options, *sample, *nulls) for sample in samples]))
        else:
            heads.append(torch.stack([free(options, *sample) for sample in samples]))
    return linear(weights.out, torch.cat(heads, -1))


def blocks_of(options: Options, x: Tensor) -> list[Tensor]:
    """Whole blocks, zeros at the end."""
    b = options.block
    filled = torch.cat([x, x.new_zeros(b * math.ceil(len(x) / b) - len(x), x.shape[1])])
    return [filled[at : at + b] for at in range(0, len(filled), b)]


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (k @ q / math.sqrt(len(q))).softmax(0) @ v


def free(options: Options, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Blocks are sorted by a matrix whose rows and columns are brought to sums of 1 in turns (equation 3)."""
    qs, ks, vs = (blocks_of(options, part) for part in (q, k, v))
    fits = [torch.stack([one.mean(0) @ other.mean(0) / math.sqrt(q.shape[1]) for other in ks]) for one in qs]
    order = (torch.stack(fits).clamp(min=0) + 1e-6) ** (1 / options.temperature)
    for _ in range(options.iterations):
        order = order / order.sum(1, keepdim=True)
        order = order / order.sum(0, keepdim=True)
    sorted_k, sorted_v = (
        [sum(share * block for share, block in zip(row, blocks, strict=True)) for row in order] for blocks in (ks, vs)
    )
    answers = []
    for token in range(len(q)):
        mine = token // options.block
        if options.sortcut:
            keys, values = torch.cat(sorted_k[: options.sortcut]), torch.cat(sorted_v[: options.sortcut])
        else:
            own = slice(mine * options.block, (mine + 1) * options.block)
            keys, values = torch.cat([sorted_k[mine], k[own]]), torch.cat([sorted_v[mine], v[own]])
        answers.append(attended(q[token], keys, values))
    return torch.stack(answers)


def causal(options: Options, q: Tensor, k: Tensor, v: Tensor, null_k: Tensor, null_v: Tensor) -> Tensor:
    """A block takes a mixture of a learned block and those before it, by the mean of all queries up to its first."""
    ks, vs = blocks_of(options, k), blocks_of(options, v)
    answers = []
    for token in range(len(q)):
        mine = token // options.block
        first = mine * options.block
        asked = q[: first + 1].mean(0)
        fits = [0 * asked[0], *(asked @ ks[before].mean(0) / math.sqrt(q.shape[1]) for before in range(mine))]
        order = (torch.stack(fits) / options.temperature).softmax(0)
        mixed_k = order[0] * null_k + sum(order[1 + before] * ks[before] for before in range(mine))
        mixed_v = order[0] * null_v + sum(order[1 + before] * vs[before] for before in range(mine))
        keys = torch.cat([mixed_k.expand(options.block, -1), k[first : token + 1]])
        values = torch.cat([mixed_v.expand(options.block, -1), v[first : token + 1]])
        answers.append(attended(q[token], keys, values))
    return torch.stack(answers)
