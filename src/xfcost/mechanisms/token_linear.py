"""ResMLP's token mixing: one linear map over the tokens."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import Operation, Place
from xfcost.formulas.mixers import StaticGlobalMixer
from xfcost.formulas.rows import linear_over_tokens


class TokenLinear(StaticGlobalMixer, frozen=True, kw_only=True, tag="token_linear"):
    """ResMLP's cross-patch sub-layer: one N×N map over the tokens, alike in all channels (Touvron et al. 2021, §2).

        linear   d·N² MACs, N² + N parameters

    As attention it mixes N² pairs, with weights that are learned and fixed; another N needs new ones.
    """

    short_name = "Token-mixing linear"

    bias: bool = True
    """Whether the linear map has a bias."""

    def operations(self, place: Place) -> Iterator[Operation]:
        n = place.grid.total
        yield linear_over_tokens("linear", "Linear over tokens", place.dim, n, n, bias=self.bias)
