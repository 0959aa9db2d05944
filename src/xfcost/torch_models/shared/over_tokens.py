"""A linear map over the tokens. B batch, N input tokens, M output tokens, D width."""

from __future__ import annotations

from torch import Tensor

from xfcost.torch_models.shared.leaves import Linear


class OverTokens(Linear):
    """A linear map over the tokens, shared by all channels: (B, N, D) -> (B, M, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(x_BND.transpose(1, 2)).transpose(1, 2)
