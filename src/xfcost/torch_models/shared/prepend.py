"""Learned tokens before the others. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor

from xfcost.torch_models.shared.leaves import Table


class Prepend(Table):
    """Learned tokens before the others: (B, N, D) -> (B, m+N, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        return torch.cat([self.weight.expand(x_BND.shape[0], -1, -1), x_BND], dim=1)
