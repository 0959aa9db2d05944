"""Module of `layers/stems.py`: repeats pooled tokens and adds an earlier stage's output.

B batch, P input tokens, N output tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import Upsample
from xfcost.torch_models.shared.leaves import Add


class UpsampleLayer(nn.Module):
    """(B, P, D), the earlier stage's output (B, N, D) -> (B, N, D)."""

    def __init__(self, config: Upsample, place: Place) -> None:
        super().__init__()
        if place.memory is None:
            raise TypeError("no earlier stage is added here")
        self.repeat = Repeat(config, place.grid.total, place.memory.total)
        self.add = Add()

    def forward(self, x_BPD: Tensor, skip_BND: Tensor) -> Tensor:
        return self.add(self.repeat(x_BPD), skip_BND)


class Repeat(nn.Module):
    """(B, P, D) -> (B, N, D). A separate [CLS] is not repeated; missing tokens at the end are zeros."""

    def __init__(self, config: Upsample, tokens: int, length: int) -> None:
        super().__init__()
        self.factor, self.length, self.separate = config.factor, length, config.separate_cls
        self.missing = length - 1 - (tokens - 1) * config.factor if config.separate_cls else 0

    def forward(self, x_BPD: Tensor) -> Tensor:
        if not self.separate:
            return x_BPD.repeat_interleave(self.factor, dim=1)[:, : self.length]
        repeated = x_BPD[:, 1:].repeat_interleave(self.factor, dim=1)[:, : self.length - 1]
        parts = [x_BPD[:, :1], repeated]
        if self.missing > 0:
            parts.append(torch.zeros_like(x_BPD[:, :1]).expand(-1, self.missing, -1))
        return torch.cat(parts, dim=1)
