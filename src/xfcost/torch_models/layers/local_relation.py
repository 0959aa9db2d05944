"""Module of `layers/local_relation.py`: local relation with a stride as a stem. B batch, N tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.torch_models.mechanisms.local_relation import LocalRelationLayer
from xfcost.torch_models.shared.leaves import ACTIVATIONS, through
from xfcost.torch_models.shared.norms import norm


class LocalRelationStem(nn.Module):
    """(B, N, D) -> (B, N', D)."""

    def __init__(self, config: LocalRelationEmbed, place: Place) -> None:
        super().__init__()
        self.inner = LocalRelationLayer(config.layer, place)
        self.norm = norm(config.norm, place.dim)
        self.act = None if config.act == "none" else ACTIVATIONS[config.act]()

    def forward(self, x_BND: Tensor) -> Tensor:
        return through(self.inner(x_BND), self.norm, self.act)
