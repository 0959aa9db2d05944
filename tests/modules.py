"""Modules that several tests of the live accounts share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from xfcost.torch_models.tracing.trace import Traced


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


class Module(nn.Module):
    """A function of the module itself and its inputs, with layers, parameters and what else it reads of itself."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any, **more: Any) -> Any:
        return self.function(self, *inputs, **more)


class Holder(nn.Module):
    """A module with a name to be found by."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.it = part

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.it(*inputs)


def work(found: Traced) -> dict[str, int]:
    """The sums over all modules that aren't 0."""
    quantities = ("macs", "flops", "comparisons", "moved")
    sums = {one: sum(getattr(costs, one) for costs in found.modules.values()) for one in quantities}
    return {one: amount for one, amount in sums.items() if amount}


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
