"""Stand-alone local self-attention (Ramachandran et al. 2019, equation 3); beyond the border stand zeros."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Spot, Weights, numbered, spots, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    return strided(options, place, weights, x, options.stride)


def strided(options: Options, place: Place, weights: Weights, x: Tensor, stride: int) -> Tensor:
    """Position by position and head by head; a stride is the mean of what there is of each cell."""
    tokens, rank, middle = numbered(place.sides), len(place.sides), (options.size - 1) // 2
    q, k, v = thirds(weights.qkv, x)
    zeros, outputs = torch.zeros_like(q[:, 0]), []
    for here, number in tokens.items():
        heads = []
        for head, mine in enumerate(torch.arange(place.dim).chunk(options.heads)):
            scores, values = [], []
            for offset in spots((options.size,) * rank):
                there = tokens.get(tuple(a + b - middle for a, b in zip(here, offset, strict=True)))
                key = (zeros if there is None else k[:, there])[:, mine]
                if options.position == "relative":
                    table = weights.positions.weight
                    key = key + torch.cat([table[axis, head, step] for axis, step in enumerate(offset)])
                scores.append((q[:, number, mine] * key).sum(-1))
                values.append((zeros if there is None else v[:, there])[:, mine])
            given = torch.stack(scores, -1).softmax(-1)
            heads.append(torch.einsum("bw,bwk->bk", given, torch.stack(values, 1)))
        outputs.append(torch.cat(heads, -1))
    return cell_means(outputs, place.sides, stride)


def cell_means(tokens: list[Tensor], sides: Spot, stride: int) -> Tensor:
    cells = spots(tuple(math.ceil(side / stride) for side in sides))
    stands = spots(sides)
    answers = []
    for cell in cells:
        inside = [
            token for token, at in zip(tokens, stands, strict=True) if tuple(place // stride for place in at) == cell
        ]
        answers.append(sum(inside) / len(inside))
    return torch.stack(answers, 1)
