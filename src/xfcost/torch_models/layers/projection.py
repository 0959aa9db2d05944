"""Module of `layers/stems.py`: a linear map of input vectors. B batch, N tokens, C channels, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.stems import Projection
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import Linear


class ProjectionLayer(Chain):
    """(B, N, C) -> (B, N, D)."""

    def __init__(self, config: Projection, place: Place) -> None:
        super().__init__(projection=Linear(place.dim, place.out_dim, bias=config.bias))
