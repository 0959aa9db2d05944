"""Work on the tokens of a sequence as a whole. B batch, N and M tokens, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.torch_models.shared.leaves import Linear, Table


class OverTokens(Linear):
    """A linear map over the tokens, shared by all channels: (B, N, D) -> (B, M, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(x_BND.transpose(1, 2)).transpose(1, 2)


class Prepend(Table):
    """Learned tokens before the others: (B, N, D) -> (B, m+N, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        return torch.cat([self.weight.expand(x_BND.shape[0], -1, -1), x_BND], dim=1)


class Pool(nn.Module):
    """(B, N, D) -> (B, D): the mean of all tokens, or one token's vector, such as the class token's."""

    def __init__(self, form: str, token: int = 0) -> None:
        super().__init__()
        self.form, self.token = form, token

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND.mean(dim=1) if self.form == "mean" else x_BND[:, self.token]
