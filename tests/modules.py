"""Modules that several tests of the live accounts share."""

from __future__ import annotations

from torch import Tensor, nn


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


class Holder(nn.Module):
    """A module with a name to be found by."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.it = part

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.it(*inputs)
