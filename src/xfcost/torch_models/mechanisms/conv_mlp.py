"""Module of `mechanisms/conv.py`: a feed-forward network with a depthwise convolution.

B batch, N tokens, D width, E hidden units.
"""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.mechanisms.conv import ConvMlp
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import TokenConvolution
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear


class ConvolutionalFeedForward(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvMlp, place: Place) -> None:
        hidden, sides = config.inner(place.dim), place.grid.sides
        super().__init__(
            fc1=Linear(place.dim, hidden),
            hidden_act=None if config.hidden_act == "none" else ACTIVATIONS[config.hidden_act](),
            conv=TokenConvolution(sides, hidden, hidden, config.kernel(place.grid), groups=hidden),
            act=ACTIVATIONS[config.act](),
            fc2=Linear(hidden, place.dim),
        )
