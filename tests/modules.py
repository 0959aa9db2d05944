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
