"""Module of `mechanisms/token_mixing.py`: a linear map over the tokens. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.mechanisms.token_mixing import TokenLinear
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.tokens import OverTokens


class TokenMixingLinear(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: TokenLinear, place: Place) -> None:
        super().__init__(linear=OverTokens(place.grid.total, place.grid.total, bias=config.bias))
