"""Heads: class logits, logits of the vocabulary, a pooled token.

B batch, N tokens, D width, P side of the pooled grid, H hidden width, V classes or vocabulary.
"""

from __future__ import annotations

from math import prod

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.heads import Classifier, FlattenClassifier, LanguageModel, MaskedLanguageModel, Pooler
from xfcost.torch_models.shared.convolution import adaptive_mean, on_grid
from xfcost.torch_models.shared.leaves import (
    ACTIVATIONS,
    NO_TABLES,
    Chain,
    Leaf,
    Linear,
    Scale,
    Scoring,
    Tables,
    TokenPool,
    through,
)
from xfcost.torch_models.shared.norms import norm


def average(x: Tensor, y: Tensor) -> Tensor:
    """(x + y) / 2."""
    return (x + y) / 2


class ClassifierHead(nn.Module):
    """(B, N, D) -> (B, classes), or (B, N, classes) if every token is classified."""

    def __init__(self, config: Classifier, place: Place) -> None:
        super().__init__()
        self.norm = norm(config.norm, place.dim)
        self.norm_after_pool = config.norm_after_pool
        form = "mean" if config.pool == "mean" else "class_token"
        self.pool = None if config.pool == "none" else TokenPool(form)
        self.linear = Linear(place.dim, config.classes, bias=config.bias)
        self.average = None
        if config.distilled:
            self.distillation_pool = TokenPool("distillation_token", place.grid.special - 1)
            self.distillation_linear = Linear(place.dim, config.classes, bias=config.bias)
            self.average = Leaf(average)

    def forward(self, x_BND: Tensor) -> Tensor:
        if self.norm_after_pool:
            return through(x_BND, self.pool, self.norm, self.linear)
        x_BND = through(x_BND, self.norm)
        answer_BV = through(x_BND, self.pool, self.linear)
        if self.average is None:
            return answer_BV
        return self.average(answer_BV, self.distillation_linear(self.distillation_pool(x_BND)))


class FlattenClassifierHead(nn.Module):
    """(B, N, D) -> (B, V)."""

    def __init__(self, config: FlattenClassifier, place: Place) -> None:
        super().__init__()
        self.sides, pooled = place.grid.sides, config.pooled_sides(place)
        self.pool = Leaf(adaptive_mean, sides=pooled)
        leaves: dict[str, nn.Module] = {}
        width = prod(pooled) * place.dim
        for number, hidden in enumerate(config.hidden, 1):
            leaves |= {f"fc{number}": Linear(width, hidden), f"act{number}": ACTIVATIONS[config.act]()}
            width = hidden
        self.inner = Chain(**leaves, linear=Linear(width, config.classes))

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.inner(self.pool(on_grid(x_BND, self.sides)).flatten(1))


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


class PoolerHead(Chain):
    """(B, N, D) -> (B, D), or (B, classes)."""

    def __init__(self, config: Pooler, place: Place) -> None:
        width = config.width or place.dim
        super().__init__(
            norm=norm(config.norm, place.dim),
            pool=TokenPool("first"),
            linear=Linear(place.dim, width),
            act=nn.Tanh() if config.act == "tanh" else ACTIVATIONS[config.act](),
            classify=None if config.classes is None else Linear(width, config.classes),
        )
