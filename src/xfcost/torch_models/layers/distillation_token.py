"""Module of `layers/tokens.py`: a learned token after the class token. B batch, N tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor

from xfcost.formulas.component import Place
from xfcost.layers.tokens import DistillationToken
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import Table


class Insert(Table):
    """A learned token after the first `before` tokens: (B, N, D) -> (B, N+1, D)."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__(1, 1, width)
        self.before = before

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        token_B1D = self.weight.expand(x_BND.shape[0], -1, -1)
        return torch.cat([x_BND[:, : self.before], token_B1D, x_BND[:, self.before :]], dim=1)


class DistillationTokenEmbedding(Chain):
    """(B, N, D) -> (B, N+1, D)."""

    def __init__(self, config: DistillationToken, place: Place) -> None:
        super().__init__(insert=Insert(place.grid.special, place.dim))
