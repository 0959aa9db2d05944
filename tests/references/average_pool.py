"""PoolFormer's pooling (Yu et al. 2022, equation 4): the mean of a K×K neighbourhood, less the token."""

from __future__ import annotations

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, spots


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """The mean of the tokens that are there, and only of those."""
    reach = (options.size - 1) // 2
    answers = []
    for here in spots(place.sides):
        near = [
            x[:, number]
            for number, there in enumerate(spots(place.sides))
            if all(-reach <= b - a <= reach for a, b in zip(here, there, strict=True))
        ]
        answers.append(sum(near) / len(near))
    return torch.stack(answers, 1) - x
