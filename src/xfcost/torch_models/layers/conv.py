"""Module of `layers/stems.py`: a convolution of pixels or tokens.

B batch, N tokens, D width, C channels, Y and X the grid's sides.
"""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.stems import ConvEmbed
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import TokenConvolution
from xfcost.torch_models.shared.leaves import ACTIVATIONS
from xfcost.torch_models.shared.norms import norm


class ConvolutionStem(Chain):
    """(B, C, Y, X) or (B, N, C) -> (B, N', D)."""

    def __init__(self, config: ConvEmbed, place: Place) -> None:
        width, options = config.out(place)[1], {"groups": config.groups, "bias": config.bias}
        conv = TokenConvolution(place.grid.sides, place.dim, width, config.kernel(place), **options)
        act = None if config.act == "none" else ACTIVATIONS[config.act]()
        super().__init__(conv=conv, norm=norm(config.norm, width), act=act)
