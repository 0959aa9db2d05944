"""Weights under which nothing hides: a module's own, and its own with noise."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from math import prod

import torch
from torch import nn


def with_weights(model: nn.Module, seeds: int) -> Iterator[tuple[int, nn.Module]]:
    """A copy of the module in float64 and evaluation mode, with its own weights, then with noise added to them.

    A weight that is zero at the start (of a gate, of a last layer) lets nothing through, whatever the model is.
    """
    made = copy.deepcopy(model).cpu().double().eval().requires_grad_(requires_grad=False)
    own = [parameter.clone() for parameter in made.parameters()]
    for seed in range(seeds):
        noise = torch.Generator().manual_seed(seed)
        for parameter, value in zip(made.parameters(), own, strict=True):
            if seed and parameter.is_floating_point():
                gain = prod(parameter.shape[1:]) ** -0.5
                more = torch.randn(parameter.shape, generator=noise, dtype=torch.float64) * gain
                parameter.copy_(value + more)
        yield seed, made
