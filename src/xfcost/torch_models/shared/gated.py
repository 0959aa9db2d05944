"""Module of `layers/feed_forward.py`: a gated feed-forward network. B batch, N tokens, D width."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.feed_forward import GatedMlp
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Linear, Multiply


class GatedFeedForward(nn.Module):
    """(B, N, D) -> (B, N, D). Linear maps of another class can take more arguments than x."""

    def __init__(self, config: GatedMlp, place: Place, linear: Callable[..., nn.Module] = Linear) -> None:
        super().__init__()
        hidden = config.inner(place.dim)
        self.gate = linear(place.dim, hidden, bias=config.bias)
        self.act = ACTIVATIONS[config.activation]()
        self.up = linear(place.dim, hidden, bias=config.bias)
        self.glu = Multiply()
        self.down = linear(hidden, place.dim, bias=config.bias)

    def forward(self, x_BND: Tensor, *more: Tensor) -> Tensor:
        return self.down(self.glu(self.act(self.gate(x_BND, *more)), self.up(x_BND, *more)), *more)
