"""Module of `layers/language_model.py`: logits of the vocabulary. B batch, N tokens, D width, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.language_model import LanguageModel
from xfcost.torch_models.shared.leaves import NO_TABLES, Leaf, Scale, Scoring, Tables, through
from xfcost.torch_models.shared.norms import norm


def last_position(x_BND: Tensor) -> Tensor:
    """(B, N, D) -> (B, 1, D), the last position."""
    return x_BND[:, -1:]


class LanguageModelHead(nn.Module):
    """(B, N, D) -> (B, N, V), or (B, 1, V) for logits of the last position only."""

    def __init__(self, config: LanguageModel, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.norm = norm(config.norm, place.dim)
        self.scale = Scale(place.dim**-0.5) if config.scale == "rsqrt_dim" else None
        self.last = Leaf(last_position) if place.logits == "last" else None
        shared = tables[config.share] if config.share else None
        self.linear = Scoring(place.vocabulary, place.dim, shared, bias=config.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.linear(through(x_BND, self.norm, self.scale, self.last))
