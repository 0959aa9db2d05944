"""Module of `layers/local_relation.py`: local relation with a stride as a stem. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.torch_models.mechanisms.local_relation import LocalRelationLayer
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import ACTIVATIONS
from xfcost.torch_models.shared.norms import norm


class LocalRelationStem(Chain):
    """(B, N, D) -> (B, N', D)."""

    def __init__(self, config: LocalRelationEmbed, place: Place) -> None:
        act = None if config.act == "none" else ACTIVATIONS[config.act]()
        super().__init__(inner=LocalRelationLayer(config.layer, place), norm=norm(config.norm, place.dim), act=act)
