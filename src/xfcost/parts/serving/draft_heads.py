"""Layers of speculative decoding on top of a model of given sizes: no spec writes them, `--draft` adds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from xfcost.formulas.component import Embed, Grid, Head, NormKind, Number, Place
from xfcost.layers.heads import scores
from xfcost.program.functions import added, beside
from xfcost.program.leaves import Weight
from xfcost.program.operations import Operations
from xfcost.program.symbolic import Tensor


class HiddenJoin(Embed, frozen=True, kw_only=True, tag="hidden_join"):
    """W[h; e]: the target's hidden state h and the embedding e of the token after it, d wide each, to width d.

    norm_hidden, norm_token   N·d elements each, a norm's parameters each, where there are norms
    join                      2·N·d elements written
    projection                2·N·d² MACs, 2·d² parameters

    The entrance of an MTP module, with norms (DeepSeek-V3, 2024, §2.2, equation 21), and of EAGLE's autoregression
    head, without (Li et al. 2024, arXiv:2401.15077, §3). The hidden state is there: e stands for it, which is as wide.
    """

    token_wise: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {"projection": "Hidden state and token to the width"}

    norm: NormKind = "none"
    """The norm of both."""

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        parts = (t.norm(name, x, self.norm) for name in ("norm_hidden", "norm_token"))
        both = t.leaf("join", beside, *parts, title="Hidden state and token beside each other")
        return t.linear("projection", both, place.out_dim, bias=False)


class MedusaHead(Head, frozen=True, kw_only=True, tag="medusa"):
    """(SiLU(hW₁ + b) + h)W₂ of the last hidden state h (Cai et al. 2024, arXiv:2401.10774, §2.1.1; b: the public code).

    linear      N·d² MACs, d² + d parameters
    act         N·d elements
    add         N·d additions
    vocabulary  N·d·V MACs, d·V parameters
    """

    token_wise: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {"linear": "Residual block of the head", "act": "Its activation"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        y = t.act("act", t.linear("linear", x, place.dim), "silu")
        y = t.leaf("add", added, y, x, role="add", title="Residual add")
        table = Weight((place.vocabulary, place.dim))
        return t.leaf("vocabulary", scores, y, weights=(table,), title="Vocabulary scores", vocabulary=True)
