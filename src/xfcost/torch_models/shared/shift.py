"""A shift of the tokens by one along an axis. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.grid_axes import Axis, axis_index


class ByOne(nn.Module):
    """Zeros, then all tokens of a line except the last: (B, N, D) -> (B, N, D)."""

    def __init__(self, axis: Axis, place: Place) -> None:
        super().__init__()
        self.sides, self.axis = place.grid.sides, 1 + axis_index(axis, place.grid)
        # F.pad takes (before, after) of each axis, last axis first. The width and later axes are not padded.
        self.pad = [0, 0] * (1 + len(self.sides) - self.axis) + [1, 0]

    def forward(self, x_BND: Tensor) -> Tensor:
        x = x_BND.unflatten(1, self.sides).narrow(self.axis, 0, self.sides[self.axis - 1] - 1)
        return F.pad(x, self.pad).flatten(1, -2)
