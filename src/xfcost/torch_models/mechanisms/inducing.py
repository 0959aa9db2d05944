"""Module of `mechanisms/inducing.py`: attention through learned inducing points.

B batch, N tokens, S inducing points, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.inducing import Inducing
from xfcost.torch_models.shared.attention import Reading
from xfcost.torch_models.shared.leaves import Add, Linear, Table, through
from xfcost.torch_models.shared.norms import norm


def _attention(config: Inducing, place: Place) -> Reading:
    return Reading(
        (place.dim, place.dim),
        config.inner(place.dim),
        config.heads,
        bias=config.projection_bias,
        fused=place.fused,
        output=config.output_projection,
    )


class Induced(nn.Module):
    """The points after reading the tokens, MAB(I, X) or MH(I, X, X): (1, S, D), (B, N, D) -> (B, S, D)."""

    def __init__(self, config: Inducing, place: Place) -> None:
        super().__init__()
        d = place.dim
        self.inner = _attention(config, place)
        self.mab = config.induce == "mab"
        if self.mab:
            self.add = Add()
            self.norm = norm(config.norm, d)
            self.rff = Linear(d, d)
            self.act = nn.ReLU()
            self.rff_add = Add()
            self.rff_norm = norm(config.norm, d)

    def forward(self, points_1SD: Tensor, x_BND: Tensor) -> Tensor:
        read_BSD: Tensor = self.inner(points_1SD, x_BND)
        if not self.mab:
            return read_BSD
        z_BSD = through(self.add(read_BSD, points_1SD), self.norm)
        return through(self.rff_add(z_BSD, self.act(self.rff(z_BSD))), self.rff_norm)


class InducedAttention(nn.Module):
    """(B, N, D) -> (B, N, D): the points read all tokens, then each token reads the points."""

    def __init__(self, config: Inducing, place: Place) -> None:
        super().__init__()
        self.points = Table(1, config.points, place.dim)
        self.induced = Induced(config, place)
        self.inner = _attention(config, place)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.inner(x_BND, self.induced(self.points(), x_BND))
