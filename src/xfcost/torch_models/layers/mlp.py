"""Module of `layers/feed_forward.py`: linear maps. B batch, N tokens, D width, D' output width."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.feed_forward import Mlp
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Leaf, Linear, joined


class FeedForward(nn.Module):
    """(B, N, D) -> (B, N, D'). Linear maps of another class can take more arguments than x."""

    def __init__(self, config: Mlp, place: Place, linear: Callable[..., nn.Module] = Linear) -> None:
        super().__init__()
        hidden, width = config.inner(place.dim), config.width(place)
        self.widths = (place.dim, width)
        self.fc1 = linear(place.dim, hidden, bias=config.bias)
        self.act = ACTIVATIONS[config.act]()
        self.fc2 = linear(hidden, width, bias=config.bias)
        self.chunks = config.chunks
        self.join = Leaf(joined, dim=1) if config.chunks > 1 else None

    def forward(self, x_BND: Tensor, *more: Tensor) -> Tensor:
        if self.join is None:
            return self._through(x_BND, *more)
        return self.join(*[self._through(part_BND) for part_BND in x_BND.chunk(self.chunks, dim=1)])

    def residual_projection(self) -> nn.Module | None:
        """The projection of the residual stream to the new width."""
        return Linear(*self.widths) if self.widths[0] != self.widths[1] else None

    def _through(self, x_BND: Tensor, *more: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x_BND, *more)), *more)
