"""Prepares a module for a probe: a copy in float64, with weights that hide nothing."""

from __future__ import annotations

import copy
from math import prod

import torch
from torch import nn


def prepared(module: nn.Module, noise: torch.Generator | None) -> nn.Module:
    """A copy in float64 and evaluation mode; with `noise`, random weights of about unit gain."""
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise ValueError("a module on `meta` has no numbers to probe; build it on the CPU")
    module = copy.deepcopy(module).cpu().double().eval().requires_grad_(requires_grad=False)
    for parameter in module.parameters() if noise else ():
        gain = prod(parameter.shape[1:]) ** -0.5
        parameter.copy_(torch.randn(parameter.shape, generator=noise, dtype=torch.float64) * gain)
    return module
