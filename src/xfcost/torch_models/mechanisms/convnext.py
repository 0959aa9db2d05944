"""Module of `mechanisms/residual_blocks.py`: a depthwise convolution and a feed-forward network.

B batch, N tokens, D width.
"""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.mechanisms.residual_blocks import ConvNext
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import TokenConvolution
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear
from xfcost.torch_models.shared.norms import norm


class ConvNextBlock(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: ConvNext, place: Place) -> None:
        dim, hidden = place.dim, config.inner(place.dim)
        super().__init__(
            conv=TokenConvolution(place.grid.sides, dim, dim, config.kernel(place.grid), groups=dim),
            norm=norm(config.norm, dim),
            fc1=Linear(dim, hidden),
            act=ACTIVATIONS[config.act](),
            fc2=Linear(hidden, dim),
        )
