"""One linear map and an activation, token by token: the row-wise feed-forward layer of set networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from xfcost.layers.base import PerToken
from xfcost.ledger import Operation
from xfcost.mechanisms.base import ActKind, Place
from xfcost.mechanisms.rows import elementwise, linear


class Dense(PerToken, frozen=True, kw_only=True, tag="dense"):
    """act(xW + b), d to d: Set Transformer's rFF as its authors' code has it (Lee et al. 2019, equation 6).

    linear   N·d² MACs, d² + d parameters
    act      N·d elements
    """

    act: ActKind | Literal["none"] = "relu"
    bias: bool = True

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        yield linear("linear", "Linear map", n, d, d, bias=self.bias)
        if self.act != "none":
            yield elementwise("act", "Activation", self.act, n * d)
