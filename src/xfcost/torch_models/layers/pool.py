"""Module of `layers/stems.py`: max or mean pooling of a grid.

B batch, N tokens, D width, C channels, Y and X the grid's sides.
"""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.stems import Pool
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import TokenPooling


class PoolingStem(Chain):
    """(B, C, Y, X) or (B, N, D) -> (B, N', D)."""

    def __init__(self, config: Pool, place: Place) -> None:
        super().__init__(pool=TokenPooling(place.grid.sides, config.form, config.kernel(place)))
