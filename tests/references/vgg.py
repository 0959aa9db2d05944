"""VGG's block (Simonyan and Zisserman 2015, §2.1): 3×3 convolutions with ReLU, then the largest of every 2×2."""

from __future__ import annotations

import torch
from torch import Tensor

from references.conv import convolved
from references.plain import Options, Place, Weights, batch_norm, numbered, relu, spots


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Convolution, batch norm where there is one, ReLU, as often as is said; an odd last position is left out."""
    for number in range(1, options.convs + 1):
        x = convolved(x, place.sides, getattr(weights, f"conv{number}"))
        if options.norm != "none":
            x = batch_norm(getattr(weights, f"norm{number}"), x)
        x = relu(x)
    tokens = numbered(place.sides)
    answers = []
    for corner in spots(tuple(side // 2 for side in place.sides)):
        four = [tuple(2 * at + step for at, step in zip(corner, steps, strict=True)) for steps in steps_of(place)]
        answers.append(torch.stack([x[:, tokens[spot]] for spot in four], 0).amax(0))
    return torch.stack(answers, 1)


def steps_of(place: Place) -> list[tuple[int, ...]]:
    """The positions of a 2×2 square, or of its like along one axis or three, from its corner."""
    return spots((2,) * len(place.sides))
