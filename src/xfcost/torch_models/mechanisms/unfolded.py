"""Module of `mechanisms/unfolded.py`: attention between tokens at the same position of each patch.

B batch, N tokens, D width, G groups (positions in a patch), T tokens of a group, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.unfolded import Unfolded
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import Linear


class UnfoldedAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order."""

    def __init__(self, config: Unfolded, place: Place) -> None:
        super().__init__()
        inner, patch = config.inner(place.dim), config.patch
        self.heads, self.rank = config.heads, len(place.grid.sides)
        self.patches = tuple(side // patch for side in place.grid.sides)
        self.places = (patch,) * self.rank
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        self.core = Core(inner // config.heads, fused=place.fused)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BGHTK, k_BGHTK, v_BGHTK = (
            part.unflatten(-1, (self.heads, -1)).transpose(2, 3) for part in self.qkv(self.unfold(x_BND)).chunk(3, -1)
        )
        return self.fold(self.out(self.core(q_BGHTK, k_BGHTK, v_BGHTK).transpose(2, 3).flatten(3)))

    def unfold(self, x_BND: Tensor) -> Tensor:
        """Groups tokens by their position in the patch: (B, N, D) -> (B, G, T, D)."""
        cut = [side for pair in zip(self.patches, self.places, strict=True) for side in pair]
        x = x_BND.unflatten(1, cut).movedim([2 + 2 * axis for axis in range(self.rank)], [*range(1, 1 + self.rank)])
        return x.flatten(1 + self.rank, -2).flatten(1, self.rank)

    def fold(self, x_BGTD: Tensor) -> Tensor:
        """The inverse of `unfold`."""
        x = x_BGTD.unflatten(2, self.patches).unflatten(1, self.places)
        return x.movedim([*range(1, 1 + self.rank)], [2 + 2 * axis for axis in range(self.rank)]).flatten(1, -2)
