"""Module of `formulas/attention.DenseAttention`: softmax(QKᵀ/√K + bias)V, eager or fused.

B batch, G groups (windows) side by side, H heads, N query tokens, M key tokens, K head width, V width of values.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.torch_models.shared.leaves import (
    Add,
    CausalMask,
    Fused,
    GroupedScores,
    GroupedSum,
    Scale,
    Scores,
    Softmax,
    WeightedSum,
)


class Core(nn.Module):
    """(B, [G,] H, N, K), (B, [G,] H, M, K), (B, [G,] H, M, V), bias ([G,] H, N, M) -> (B, [G,] H, N, V).

    `mask` is a leaf that masks scores (eager) or the bias (fused). `shared` query heads read one head of keys and
    values.
    """

    def __init__(  # noqa: PLR0913 - the options of the formula
        self,
        head_dim: int,
        *,
        fused: bool,
        causal: bool = False,
        biased: bool = False,
        scaled: bool = True,
        shared: int = 1,
        mask: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.fused = fused
        self.mask = CausalMask() if causal and not fused else mask
        if fused:
            self.attention = Fused(causal=causal, scaled=scaled, grouped=shared > 1)
            return
        self.scale = Scale(head_dim**-0.5) if scaled else None
        self.scores = Scores() if shared == 1 else GroupedScores(shared)
        self.add_bias = Add() if biased else None
        self.softmax = Softmax()
        self.weighted_sum = WeightedSum() if shared == 1 else GroupedSum(shared)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.fused:
            bias = bias if self.mask is None else self.mask(bias)
            return self._grouped(q, k, v, bias) if q.dim() > 4 else self.attention(q, k, v, bias)  # noqa: PLR2004
        scores = self.scores(self.scaled(q), k)
        if self.add_bias is not None:
            scores = self.add_bias(scores, bias)
        if self.mask is not None:
            scores = self.mask(scores)
        return self.weighted_sum(self.softmax(scores), v)

    def scaled(self, q: Tensor) -> Tensor:
        """q/√K, or q if scores are not scaled."""
        return q if self.scale is None else self.scale(q)

    def _grouped(self, q_BGHNK: Tensor, k_BGHMK: Tensor, v_BGHMV: Tensor, bias: Tensor | None) -> Tensor:
        """Merges the groups into another axis, because the kernel takes four dimensions.

        A bias merges the groups into heads, so that it is not copied per sample. With a mask for all heads they merge
        into samples.
        """
        batch, groups, heads = q_BGHNK.shape[:3]
        if bias is not None and bias.dtype == torch.bool and bias.dim() > 3:  # noqa: PLR2004 - (G, 1, N, M)
            bias = bias.expand(batch, *bias.shape).flatten(0, 1)
            first, sizes = 0, (batch, groups)
        elif bias is not None:
            bias = bias.expand(groups, heads, -1, -1).flatten(0, 1)
            first, sizes = 1, (groups, heads)
        else:
            first, sizes = 0, (batch, groups)
        parts = (part.flatten(first, first + 1) for part in (q_BGHNK, k_BGHMK, v_BGHMV))
        return self.attention(*parts, bias).unflatten(first, sizes)
