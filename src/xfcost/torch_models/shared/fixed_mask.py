"""A mask that is known before the model runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FixedMask(nn.Module):
    """-∞ at the `shut` pairs of a query and a key. Without scores, a boolean mask of the pairs that may be read."""

    shut: Tensor

    def __init__(self, shut: Tensor) -> None:
        super().__init__()
        self.register_buffer("shut", shut.to(torch.empty(0).device), persistent=False)

    def forward(self, scores: Tensor | None) -> Tensor:
        return self.shut.logical_not() if scores is None else scores.masked_fill(self.shut, float("-inf"))
