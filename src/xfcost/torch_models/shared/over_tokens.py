"""A linear map over the tokens. B batch, N tokens, M what the map makes of them, D width."""

from __future__ import annotations

from torch import Tensor

from xfcost.torch_models.shared.leaves import Linear


class OverTokens(Linear):
    """A linear map over the tokens, alike in all channels: (B, N, D) -> (B, M, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(x_BND.transpose(1, 2)).transpose(1, 2)
