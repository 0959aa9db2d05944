"""Attention with decays in place of a softmax, shared by retention and Mamba-2."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.torch_models.shared.leaves import Multiply, Scores, WeightedSum


class DecayedAttention(nn.Module):
    """(QKᵀ∘D)V: (…, T, K) twice, (…, T, V), (…, T, T) -> (…, T, V)."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = Scores()
        self.weigh = Multiply()
        self.weighted_sum = WeightedSum()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, decays: Tensor) -> Tensor:
        return self.weighted_sum(self.weigh(self.scores(q, k), decays), v)
