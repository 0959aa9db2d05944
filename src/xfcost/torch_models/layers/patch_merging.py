"""Module of `layers/stems.py`: merges 2×2 neighbours into one token.

B batch, N tokens, D width, Y and X the grid's sides.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import PatchMerging
from xfcost.torch_models.shared.leaves import Leaf, Linear
from xfcost.torch_models.shared.norms import LayerNorm


def merged_neighbours(x_BND: Tensor, *, sides: tuple[int, int]) -> Tensor:
    """2×2 neighbours concatenated, odd grids padded: (B, N, D) -> (B, ⌈N/4⌉, 4D)."""
    x_BYXD = x_BND.unflatten(1, sides)
    odd = [side % 2 for side in sides]
    if any(odd):
        x_BYXD = F.pad(x_BYXD, (0, 0, 0, odd[1], 0, odd[0]))
    x = x_BYXD.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # (B, Y/2, 2, X/2, 2, D)
    return x.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)  # columns before rows, as Swin's weights have it


class PatchMergingLayer(nn.Module):
    """(B, N, D) -> (B, ⌈N/4⌉, D')."""

    def __init__(self, config: PatchMerging, place: Place) -> None:
        super().__init__()
        height, width = place.grid.sides
        self.gather = Leaf(merged_neighbours, sides=(height, width))
        self.post = config.norm == "post"
        self.norm = LayerNorm(place.out_dim if self.post else 4 * place.dim)
        self.reduction = Linear(4 * place.dim, place.out_dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        x = self.gather(x_BND)
        return self.norm(self.reduction(x)) if self.post else self.reduction(self.norm(x))
