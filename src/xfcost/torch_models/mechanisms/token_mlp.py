"""Module of `mechanisms/token_mixing.py`: a two-layer network over the tokens.

B batch, N tokens, D width, K hidden units.
"""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.mechanisms.token_mixing import TokenMlp
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.leaves import ACTIVATIONS
from xfcost.torch_models.shared.tokens import OverTokens


class TokenMixingMlp(Chain):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: TokenMlp, place: Place) -> None:
        tokens = place.grid.total
        super().__init__(
            fc1=OverTokens(tokens, config.hidden, bias=config.bias),
            act=ACTIVATIONS[config.act](),
            fc2=OverTokens(config.hidden, tokens, bias=config.bias),
        )
