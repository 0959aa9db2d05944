"""Module of `layers/heads.py`: BERT's head. B batch, N tokens, D width, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.heads import MaskedLanguageModel, Pooler
from xfcost.torch_models.layers.language_model import LanguageModelHead
from xfcost.torch_models.layers.pooler import PoolerHead
from xfcost.torch_models.shared.leaves import ACTIVATIONS, NO_TABLES, Linear, Tables


class MaskedLanguageModelHead(nn.Module):
    """(B, N, D) -> (B, N, V), and (B, 2) for next-sentence prediction."""

    def __init__(self, config: MaskedLanguageModel, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.transform = Linear(place.dim, place.dim)
        self.act = ACTIVATIONS[config.act]()
        self.core = LanguageModelHead(config.scores, place, tables)
        self.pooler = PoolerHead(Pooler(), place) if config.next_sentence else None
        self.next_sentence = Linear(place.dim, 2) if config.next_sentence else None

    def forward(self, x_BND: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        scores_BNV: Tensor = self.core(self.act(self.transform(x_BND)))
        if self.pooler is None or self.next_sentence is None:
            return scores_BNV
        return scores_BNV, self.next_sentence(self.pooler(x_BND))
