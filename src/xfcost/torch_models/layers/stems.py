"""The stem of local relations. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.torch_models.mechanisms.local_attention import LocalRelationLayer
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Chain
from xfcost.torch_models.shared.norms import norm


class LocalRelationStem(Chain):
    """(B, N, D) -> (B, N', D)."""

    def __init__(self, config: LocalRelationEmbed, place: Place) -> None:
        act = None if config.act == "none" else ACTIVATIONS[config.act]()
        super().__init__(inner=LocalRelationLayer(config.layer, place), norm=norm(config.norm, place.dim), act=act)
