"""Module of `mechanisms/synthesizer.py`: mixing weights computed without keys.

B batch, N tokens, D width, H heads, K head width, R rank, P and Q factors.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.synthesizer import RANK, Synthesizer
from xfcost.torch_models.shared.leaves import (
    Leaf,
    Linear,
    Softmax,
    Table,
    WeightedSum,
    causal_mask,
    drawn,
    join_heads,
    split_heads,
    through,
)


class SynthesizerAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: Synthesizer, place: Place) -> None:
        super().__init__()
        inner = config.inner(place.dim)
        self.heads = config.heads
        self.value = Linear(place.dim, inner, bias=config.projection_bias)
        self.core = DenseLogits(config, place) if "dense" in config.form else TableLogits(config, place)
        self.mask = Leaf(causal_mask) if config.causal else None
        self.softmax = Softmax()
        self.weighted_sum = WeightedSum()
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        v_BHNK = split_heads(self.value(x_BND), self.heads)
        logits = self.core(x_BND)  # (B, H, N, N), or (H, N, N) for the whole batch
        logits = through(logits, self.mask)
        weights = self.softmax(logits)
        return self.out(join_heads(self.weighted_sum(weights, v_BHNK)))


class DenseLogits(nn.Module):
    """Logits from each token alone: (B, N, D) -> (B, H, N, N)."""

    def __init__(self, config: Synthesizer, place: Place) -> None:
        super().__init__()
        inner, n, bias = config.inner(place.dim), place.grid.total, config.projection_bias
        self.heads = config.heads
        self.hidden = Linear(place.dim, inner, bias=bias)
        self.relu = nn.ReLU()
        self.factorized = config.form == "factorized_dense"
        width = inner // config.heads
        if self.factorized:
            a, b = config.factors(place.grid)
            self.factor_a = PerHead(config.heads, width, a, bias=bias)
            self.factor_b = PerHead(config.heads, width, b, bias=bias)
            self.synthesis: nn.Module = Leaf(products)
        else:
            self.synthesis = PerHead(config.heads, width, n, bias=bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        hidden_BHNK = split_heads(self.relu(self.hidden(x_BND)), self.heads)
        if not self.factorized:
            return self.synthesis(hidden_BHNK)
        return self.synthesis(self.factor_a(hidden_BHNK), self.factor_b(hidden_BHNK))


class PerHead(nn.Module):
    """A linear map per head: (B, H, N, K) -> (B, H, N, M)."""

    def __init__(self, heads: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        draw = partial(nn.init.uniform_, a=-(inputs**-0.5), b=inputs**-0.5)
        self.weight = drawn(heads, inputs, outputs, by=draw)
        self.bias = drawn(heads, 1, outputs, by=draw) if bias else None

    def forward(self, x_BHNK: Tensor) -> Tensor:
        y = x_BHNK @ self.weight
        return y if self.bias is None else y + self.bias


def products(a: Tensor, b: Tensor) -> Tensor:
    """Each first factor times each second factor: (B, H, N, P), (B, H, N, Q) -> (B, H, N, P·Q)."""
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)


class TableLogits(nn.Module):
    """Learned or random logits, independent of the input: -> (H, N, N)."""

    def __init__(self, config: Synthesizer, place: Place) -> None:
        super().__init__()
        n = place.grid.total
        if config.form == "factorized_random":
            self.synthesis: nn.Module = FactorTables(config.heads, n, config.rank or RANK)
        else:
            self.synthesis = Table(config.heads, n, n) if config.trainable else Drawn(config.heads, n, n)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.synthesis()


class Drawn(nn.Module):
    """A random table that is not learned: a buffer."""

    weight: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(shape))

    def forward(self) -> Tensor:
        return self.weight


class FactorTables(nn.Module):
    """R₁R₂ᵀ: -> (H, N, N)."""

    def __init__(self, heads: int, tokens: int, rank: int) -> None:
        super().__init__()
        draw = partial(nn.init.normal_, std=rank**-0.5)
        self.left, self.right = (drawn(heads, tokens, rank, by=draw) for _ in range(2))

    def forward(self) -> Tensor:
        return self.left @ self.right.mT
