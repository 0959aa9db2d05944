"""GEGLU: a feed-forward network gated by GELU."""

from __future__ import annotations

from typing import Literal

from xfcost.formulas.component import ActKind
from xfcost.formulas.gated_mlp import GatedMlp


class Geglu(GatedMlp, frozen=True, kw_only=True, tag="geglu"):
    """GEGLU, gated by GELU: (gelu(xW) ⊗ xV)W₂; T5 v1.1's, by GELU's tanh formula."""

    act: Literal["gelu", "gelu_tanh"] = "gelu"
    """`gelu` is the exact GELU, `gelu_tanh` its tanh approximation."""

    @property
    def activation(self) -> ActKind:
        return self.act
