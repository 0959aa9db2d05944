"""Modules of `layers/heads.py`. B batch, N tokens, D width, V vocabulary or classes."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers import Classifier, LanguageModel, MaskedLanguageModel, Pooler
from xfcost.torch_models.shared.leaves import ACTIVATIONS, NO_TABLES, Linear, Scale, Scoring, Tables
from xfcost.torch_models.shared.norms import norm


class Pool(nn.Module):
    """(B, N, D) -> (B, D): the mean of all tokens, or one token's vector: the first's, where a class token stands."""

    def __init__(self, form: str, token: int = 0) -> None:
        super().__init__()
        self.form, self.token = form, token

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND.mean(dim=1) if self.form == "mean" else x_BND[:, self.token]


class Average(nn.Module):
    """(x + y) / 2."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + y) / 2


class ClassifierHead(nn.Module):
    """(B, N, D) -> (B, classes), or (B, N, classes) where every token is classified."""

    def __init__(self, config: Classifier, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.norm = norm(config.norm, place.dim)
        self.norm_after_pool = config.norm_after_pool
        form = "mean" if config.pool == "mean" else "class_token"
        self.pool = None if config.pool == "none" else Pool(form)
        self.linear = Linear(place.dim, config.classes, bias=config.bias)
        self.average = None
        if config.distilled:
            self.distillation_pool = Pool("distillation_token", place.grid.extra - 1)
            self.distillation_linear = Linear(place.dim, config.classes, bias=config.bias)
            self.average = Average()

    def forward(self, x_BND: Tensor) -> Tensor:
        if self.pool is not None and self.norm_after_pool and self.norm is not None:
            return self.linear(self.norm(self.pool(x_BND)))
        x_BND = x_BND if self.norm is None else self.norm(x_BND)
        answer_BV = self.linear(x_BND if self.pool is None else self.pool(x_BND))
        if self.average is None:
            return answer_BV
        return self.average(answer_BV, self.distillation_linear(self.distillation_pool(x_BND)))


class Last(nn.Module):
    """(B, N, D) -> (B, 1, D), the last position."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return x_BND[:, -1:]


class LanguageModelHead(nn.Module):
    """(B, N, D) -> (B, N, V), or (B, 1, V) where the last position's logits are all that is computed."""

    def __init__(self, config: LanguageModel, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.norm = norm(config.norm, place.dim)
        self.scale = Scale(place.dim**-0.5) if config.scale == "rsqrt_dim" else None
        self.last = Last() if place.logits == "last" else None
        shared = tables[config.share] if config.share else None
        self.linear = Scoring(place.vocabulary, place.dim, shared, bias=config.bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = x_BND if self.norm is None else self.norm(x_BND)
        x_BND = x_BND if self.scale is None else self.scale(x_BND)
        return self.linear(x_BND if self.last is None else self.last(x_BND))


class PoolerHead(nn.Module):
    """(B, N, D) -> (B, D), or (B, classes)."""

    def __init__(self, config: Pooler, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        width = config.width or place.dim
        self.norm = norm(config.norm, place.dim)
        self.pool = Pool("first")
        self.linear = Linear(place.dim, width)
        self.act = nn.Tanh() if config.act == "tanh" else ACTIVATIONS[config.act]()
        self.classify = None if config.classes is None else Linear(width, config.classes)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BND = x_BND if self.norm is None else self.norm(x_BND)
        y_BD = self.act(self.linear(self.pool(x_BND)))
        return y_BD if self.classify is None else self.classify(y_BD)


class MaskedLanguageModelHead(nn.Module):
    """(B, N, D) -> (B, N, V); where the next sentence is asked for, (B, 2) beside it."""

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
