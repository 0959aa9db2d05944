"""Module of `layers/stems.py`: a linear map of patches of pixels.

B batch, N tokens, D width, C channels, Y and X the grid's sides.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.stems import Patch
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.norms import norm
from xfcost.torch_models.shared.uninitialised import Uninitialised


class PatchProjection(Uninitialised, nn.Conv2d):
    """nn.Conv2d with tokens as output; it skips the initialisation on `meta`: (B, C, Y, X) -> (B, N, D)."""

    def forward(self, image_BCYX: Tensor) -> Tensor:
        return super().forward(image_BCYX).flatten(2).transpose(1, 2)


class PatchEmbedding(Chain):
    """(B, C, Y, X) -> (B, N, D)."""

    def __init__(self, config: Patch, place: Place) -> None:
        projection = PatchProjection(place.dim, place.out_dim, config.size, config.size, bias=config.bias)
        super().__init__(projection=projection, norm=norm(config.norm, place.out_dim))
