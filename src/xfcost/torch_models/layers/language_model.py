"""Module of `layers/language_model.py`: logits of the vocabulary.

B batch, N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.language_model import LanguageModel
from xfcost.torch_models.shared.leaves import NO_TABLES, Scale, Scoring, Tables
from xfcost.torch_models.shared.norms import norm


class Last(nn.Module):
    """(B, N, D) -> (B, 1, D), the last position."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND[:, -1:]


class LanguageModelHead(nn.Module):
    """(B, N, D) -> (B, N, V), or (B, 1, V) for logits of the last position only."""

    def __init__(self, config: LanguageModel, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.norm = norm(config.norm, place.dim)
        self.scale = Scale(place.dim**-0.5) if config.scale == "rsqrt_dim" else None
        self.last = Last() if place.logits == "last" else None
        shared = tables[config.share] if config.share else None
        self.linear = Scoring(place.vocabulary, place.dim, shared=shared, bias=config.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = x_BND if self.norm is None else self.norm(x_BND)
        x_BND = x_BND if self.scale is None else self.scale(x_BND)
        return self.linear(x_BND if self.last is None else self.last(x_BND))
