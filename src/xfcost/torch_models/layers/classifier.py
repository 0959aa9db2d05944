"""Module of `layers/heads.py`: class logits from pooled tokens, or from every token.

B batch, N tokens, D width, V classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.heads import Classifier
from xfcost.torch_models.shared.leaves import Leaf, Linear, through
from xfcost.torch_models.shared.norms import norm
from xfcost.torch_models.shared.tokens import Pool


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
        self.pool = None if config.pool == "none" else Pool(form)
        self.linear = Linear(place.dim, config.classes, bias=config.bias)
        self.average = None
        if config.distilled:
            self.distillation_pool = Pool("distillation_token", place.grid.special - 1)
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
