"""Leaves that run one after the other."""

from __future__ import annotations

from torch import Tensor, nn


class Chain(nn.Module):
    """Leaves by name, one after the other; an option that is off is None, and no leaf."""

    def __init__(self, **leaves: nn.Module | None) -> None:
        super().__init__()
        for name, leaf in leaves.items():
            if leaf is not None:
                self.add_module(name, leaf)

    def forward(self, x: Tensor) -> Tensor:
        for leaf in self.children():
            x = leaf(x)
        return x
