"""One vector of all tokens. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn


class Pool(nn.Module):
    """(B, N, D) -> (B, D): the mean of all tokens, or one token's vector, such as the class token's."""

    def __init__(self, form: str, token: int = 0) -> None:
        super().__init__()
        self.form, self.token = form, token

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND.mean(dim=1) if self.form == "mean" else x_BND[:, self.token]
