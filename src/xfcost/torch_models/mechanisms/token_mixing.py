"""Linear maps over the tokens, in the networks around them.

B batch, N tokens, D width, H hidden units, U half of them.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.token_mixing import Gmlp, TokenLinear, TokenMlp
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Chain, Linear, LinearOverTokens, Multiply, through
from xfcost.torch_models.shared.norms import norm


class TokenMixingLinear(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: TokenLinear, place: Place) -> None:
        super().__init__(linear=LinearOverTokens(place.grid.total, place.grid.total, bias=config.bias))


class TokenMixingMlp(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: TokenMlp, place: Place) -> None:
        tokens = place.grid.total
        super().__init__(
            fc1=LinearOverTokens(tokens, config.hidden, bias=config.bias),
            act=ACTIVATIONS[config.act](),
            fc2=LinearOverTokens(config.hidden, tokens, bias=config.bias),
        )


class GmlpBlock(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Gmlp, place: Place) -> None:
        super().__init__()
        hidden = config.inner(place.dim)
        self.fc1 = Linear(place.dim, hidden)
        self.act = ACTIVATIONS[config.act]()
        self.gate = SpatialGate(config, place, hidden // 2)
        self.fc2 = Linear(hidden // 2, place.dim)

    def forward(self, x_BND: Tensor) -> Tensor:
        u_BNU, v_BNU = self.act(self.fc1(x_BND)).chunk(2, dim=-1)
        return self.fc2(self.gate(u_BNU, v_BNU))


class SpatialGate(nn.Module):
    """u ⊙ (W·norm(v) + b): (B, N, U) twice -> (B, N, U)."""

    def __init__(self, config: Gmlp, place: Place, width: int) -> None:
        super().__init__()
        self.norm = norm(config.norm, width)
        self.spatial = Spatial(place.grid.total, place.grid.total)
        self.multiply = Multiply()

    def forward(self, u_BNU: Tensor, v_BNU: Tensor) -> Tensor:
        return self.multiply(u_BNU, through(v_BNU, self.norm, self.spatial))


class Spatial(LinearOverTokens):
    """W, initialised near 0, with b = 1, so that a block starts as a plain feed-forward network (§2.1)."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            nn.init.normal_(self.weight, std=1e-6)
            nn.init.ones_(self.bias)
