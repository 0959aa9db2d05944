"""SwiGLU: a feed-forward network gated by SiLU."""

from __future__ import annotations

from xfcost.formulas.component import ActKind
from xfcost.formulas.gated_mlp import GatedMlp


class Swiglu(GatedMlp, frozen=True, kw_only=True, tag="swiglu"):
    """SwiGLU, gated by SiLU: (silu(xW) ⊗ xV)W₂; LLaMA's and PaLM's."""

    @property
    def activation(self) -> ActKind:
        return "silu"
