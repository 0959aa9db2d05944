"""One linear map and an activation, token by token: set networks' row-wise layer, a 1×1 convolution of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from xfcost.formulas.component import ActKind, ComponentError, Grid, NormKind, Number, Operation, Place
from xfcost.formulas.layer import PerToken
from xfcost.formulas.rows import elementwise, linear, norm


class Dense(PerToken, frozen=True, kw_only=True, tag="dense"):
    """act(norm(xW + b)), d to d: Set Transformer's rFF as its authors' code has it (Lee et al. 2019, equation 6).

        linear   N·d·d' MACs, d·d' + d' parameters
        norm     N·d' elements
        act      N·d' elements

    With `residual: none` it brings the width to the stage's, d to d': the 1×1 convolution behind a convolutional
    network's last block (MobileViT's, with a batch norm and no bias).
    """

    norm: NormKind = "none"
    """Norm after the linear map."""
    act: ActKind | Literal["none"] = "relu"
    """Activation function after the norm."""
    bias: bool = True
    """Whether the linear map has a bias."""

    @property
    def widens(self) -> bool:
        return self.residual == "none"

    def check(self, place: Place) -> None:
        if self.norm == "group_norm":
            raise ComponentError("norm", "a group norm mixes all tokens, and 'dense' none; use another norm")

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim if self.widens else place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        n, width = place.grid.total, self.out(place)[1]
        yield linear("linear", "Linear map", n, place.dim, width, bias=self.bias)
        yield from norm(self.norm, "norm", n, width)
        if self.act != "none":
            yield elementwise("act", "Activation", self.act, n * width)
