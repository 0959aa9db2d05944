"""Module of `mechanisms/rwkv.py`: a gated feed-forward network over each token and the one before.

B batch, N tokens, D width, H hidden units.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.rwkv import RwkvChannel
from xfcost.torch_models.shared.leaves import Leaf, Linear
from xfcost.torch_models.shared.token_shift import Gate, Mixtures, mixed, token_shift


class ChannelMixing(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) that caches the previous token."""

    def __init__(self, config: RwkvChannel, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim, hidden = place.dim, config.inner(place.dim)
        self.shift = token_shift(cache_batch, dim)
        self.mix = Mixtures(2, dim)
        self.key = Linear(dim, hidden, bias=False)
        self.act = nn.ReLU()
        self.square = Leaf(torch.square)
        self.value = Linear(hidden, dim, bias=False)
        self.receptance = Linear(dim, dim, bias=False)
        self.gate = Gate()

    def forward(self, x_BND: Tensor) -> Tensor:
        for_k, for_r = mixed(x_BND, self.shift, self.mix)
        return self.gate(self.receptance(for_r), self.value(self.square(self.act(self.key(for_k)))))
