"""Twin of `layers/mlp.py`. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.layers import Mlp
from xfcost.live.leaves import ACTIVATIONS, NO_TABLES, Linear, Tables
from xfcost.mechanisms.base import Place


class FeedForward(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, page: Mlp, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        hidden = page.inner(place.dim)
        self.fc1 = Linear(place.dim, hidden, bias=page.bias)
        self.act = ACTIVATIONS[page.act]()
        self.fc2 = Linear(hidden, place.dim, bias=page.bias)
        self.chunks = page.chunks
        self.join = Join() if page.chunks > 1 else None

    def forward(self, x_BND: Tensor) -> Tensor:
        if self.join is None:
            return self._through(x_BND)
        return self.join(*[self._through(part_BND) for part_BND in x_BND.chunk(self.chunks, dim=1)])

    def _through(self, x_BND: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x_BND)))


class Join(nn.Module):
    """Runs of tokens, one after the other: (B, N', D), … -> (B, N, D)."""

    def forward(self, *parts_BND: Tensor) -> Tensor:
        return torch.cat(parts_BND, dim=1)
