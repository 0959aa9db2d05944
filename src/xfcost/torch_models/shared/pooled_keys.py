"""Module of `formulas/pooled_keys.py`: max-pooled keys. B batch, N tokens, M pools, D width."""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.pooled_keys import PooledKeys
from xfcost.torch_models.shared.convolution import Pooling, in_rows, on_grid


class KeyPooling(Pooling):
    """The maximum of each pool: (B, N, D) -> (B, M, D)."""

    def __init__(self, keys: PooledKeys, sides: tuple[int, ...]) -> None:
        super().__init__("max", keys.kernel)
        self.sides = sides

    def forward(self, x_BND: Tensor) -> Tensor:
        return in_rows(super().forward(on_grid(x_BND, self.sides)))
