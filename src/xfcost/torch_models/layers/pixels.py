"""Module of `layers/tokens.py`: each pixel is a token. B batch, N tokens, C channels, Y and X the grid's sides."""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place
from xfcost.layers.stems import Pixels
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import Leaf


def flattened(image_BCYX: Tensor) -> Tensor:
    """(B, C, Y, X) -> (B, N, C): a view in raster order."""
    return image_BCYX.flatten(2).transpose(1, 2)


class PixelEmbedding(Chain):
    """(B, C, Y, X) or, for a video, (B, C, T, Y, X) -> (B, N, C)."""

    def __init__(self, config: Pixels, place: Place) -> None:
        super().__init__(flatten=Leaf(flattened))
