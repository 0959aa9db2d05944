"""Module of `layers/heads.py`: logits of the vocabulary. B batch, N tokens, D width, V vocabulary."""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place
from xfcost.layers.heads import LanguageModel
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import NO_TABLES, Leaf, Scale, Scoring, Tables
from xfcost.torch_models.shared.norms import norm


def last_position(x_BND: Tensor) -> Tensor:
    """(B, N, D) -> (B, 1, D), the last position."""
    return x_BND[:, -1:]


class LanguageModelHead(Chain):
    """(B, N, D) -> (B, N, V), or (B, 1, V) for logits of the last position only."""

    def __init__(self, config: LanguageModel, place: Place, tables: Tables = NO_TABLES) -> None:
        shared = tables[config.share] if config.share else None
        super().__init__(
            norm=norm(config.norm, place.dim),
            scale=Scale(place.dim**-0.5) if config.scale == "rsqrt_dim" else None,
            last=Leaf(last_position) if place.logits == "last" else None,
            linear=Scoring(place.vocabulary, place.dim, shared=shared, bias=config.bias),
        )
