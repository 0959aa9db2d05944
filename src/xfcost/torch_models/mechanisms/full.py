"""Module of `mechanisms/full.py`. B batch, N tokens, D width, H heads, K head width, V of values."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.full import Full
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.grouped import GroupedHeads
from xfcost.torch_models.shared.leaves import (
    NO_TABLES,
    CausalMask,
    Linear,
    Scale,
    Scores,
    Softmax,
    Tables,
    WeightedSum,
    join_heads,
)
from xfcost.torch_models.shared.positions import BucketBias, alibi


class TalkingHeads(Linear):
    """The heads of every pair of tokens, mixed, no matrix being copied for it: (B, H, N, M) -> (B, H, N, M)."""

    def forward(self, pairs_BHNM: Tensor) -> Tensor:
        weight_BHH = self.weight.expand(len(pairs_BHNM), -1, -1)
        mixed_BHX = weight_BHH @ pairs_BHNM.flatten(2) + self.bias.unsqueeze(-1)
        return mixed_BHX.unflatten(2, pairs_BHNM.shape[2:])


class TalkingCore(nn.Module):
    """P_w(softmax(P_l(QKᵀ/√K)))V: (B, H, N, K) twice, (B, H, N, V) -> (B, H, N, V)."""

    def __init__(self, head_dim: int, heads: int) -> None:
        super().__init__()
        self.scale = Scale(head_dim**-0.5)
        self.scores = Scores()
        self.proj_l = TalkingHeads(heads, heads)
        self.softmax = Softmax()
        self.proj_w = TalkingHeads(heads, heads)
        self.weighted_sum = WeightedSum()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights_BHNN = self.softmax(self.proj_l(self.scores(self.scale(q), k)))
        return self.weighted_sum(self.proj_w(weights_BHNN), v)


class FullAttention(GroupedHeads):
    """(B, N, D) -> (B, N, D)."""

    alibi_H1N: Tensor

    def __init__(self, config: Full, place: Place, tables: Tables = NO_TABLES) -> None:
        inner, tokens = config.inner(place.dim), place.grid.total
        super().__init__(config, place.dim, tokens)
        self.relative_bias = None
        if config.bias:
            shared = tables[config.bias.share] if config.bias.share else None
            self.relative_bias = BucketBias(config.bias, tokens, config.heads, shared, causal=bool(config.causal))
        self.falls = config.position == "alibi"
        if self.falls:
            self.register_buffer("alibi_H1N", alibi(tokens, config.heads), persistent=False)
        talking = config.talking_heads
        self.core: nn.Module = TalkingCore(inner // config.heads, config.heads) if talking else core(config, place)
        wide = config.value_inner(place.dim)
        self.out = Linear(wide, place.dim, bias=config.biased_output) if config.output_projection else None

    def forward(self, x_BND: Tensor) -> Tensor:
        bias_HNN = self._bias()
        y_BND = join_heads(self.core(*self.projected(x_BND), *(() if bias_HNN is None else (bias_HNN,))))
        return y_BND if self.out is None else self.out(y_BND)

    def _bias(self) -> Tensor | None:
        """What is added to the scores, the same for all samples: (H, N, N)."""
        if self.relative_bias is not None:
            bias_HNN: Tensor = self.relative_bias()
            return bias_HNN
        return self.alibi_H1N.expand(-1, self.alibi_H1N.shape[-1], -1) if self.falls else None


def core(config: Full, place: Place) -> Core:
    """What stands between the projections where no heads talk."""
    return Core(
        config.inner(place.dim) // config.heads,
        fused=place.fused,
        causal=bool(config.causal) and not config.biased,
        biased=config.biased,
        scaled=config.scaled,
        shared=config.shared,
        mask=CausalMask() if config.causal and config.biased else None,  # fused, it masks the bias
    )
