"""The leaves of every module: one small module per named operation. No FLOP happens outside a leaf.

Shapes: B batch, N query tokens, M key tokens, D width, H heads, K = D/H, G groups (windows) side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import ActKind


class Uninitialised:
    """To stand before a module of torch.nn: its weights are initialised as torch does it, but not on `meta`."""

    weight: Any

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()  # type: ignore[misc]


class Linear(Uninitialised, nn.Linear):
    """nn.Linear that skips the initialisation of `meta` weights, which takes time."""


class Leaf(nn.Module):
    """A function as a leaf, with its options: of inputs x it gives function(x, **options)."""

    def __init__(self, function: Callable[..., Any], /, **options: Any) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, **self.options)


def joined(*parts: Tensor, dim: int) -> Tensor:
    """Tensors concatenated along an axis."""
    return torch.cat(parts, dim=dim)


def through(x: Tensor, *leaves: nn.Module | None) -> Tensor:
    """x through those of the leaves, in order, that a module has."""
    for leaf in leaves:
        x = x if leaf is None else leaf(x)
    return x


def drawn(*shape: int, by: Callable[[Tensor], Any]) -> nn.Parameter:
    """A parameter whose numbers `by` draws; none are drawn on `meta`, where that takes time."""
    parameter = nn.Parameter(torch.empty(shape))
    if not parameter.is_meta:
        by(parameter)
    return parameter


class Table(nn.Module):
    """A learned table, returned as a tensor: positions, class tokens, vocabularies that several leaves share."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = drawn(*shape, by=partial(nn.init.normal_, std=0.02))

    def forward(self) -> Tensor:
        return self.weight


# Shared tables by name, for the modules whose constructor takes `tables`.
Tables = Mapping[str, Table]
NO_TABLES: Final[Tables] = {}


class Add(nn.Module):
    """x + y."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Multiply(nn.Module):
    """x · y, broadcast."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class Scale(nn.Module):
    """x · factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Scores(nn.Module):
    """QKᵀ: (…, N, K) · (…, M, K) -> (…, N, M)."""

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1)


class Softmax(nn.Module):
    """Softmax over the keys."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)


class WeightedSum(nn.Module):
    """AV: (…, N, M) · (…, M, K) -> (…, N, K)."""

    def forward(self, weights: Tensor, v: Tensor) -> Tensor:
        return weights @ v


def grouped_product(x: Tensor, y: Tensor, *, shared: int) -> Tensor:
    """x·y with J heads of x per head of y: (B, H, N, M) · (B, H/J, M, K) -> (B, H, N, K).

    The J heads are stacked along the token axis, so that no key or value is repeated.
    """
    stacked = x.unflatten(1, (-1, shared)).flatten(2, 3)
    return (stacked @ y).unflatten(2, (shared, -1)).flatten(1, 2)


def grouped_scores(q: Tensor, k: Tensor, *, shared: int) -> Tensor:
    """QKᵀ with J query heads per key head: (B, H, N, K) · (B, H/J, M, K) -> (B, H, N, M)."""
    return grouped_product(q, k.transpose(-2, -1), shared=shared)


def with_zeros(x: Tensor, *, before: int = 0, after: int = 0) -> Tensor:
    """Zeros before and after the tokens: (…, N, D) -> (…, N', D)."""
    return F.pad(x, (0, 0, before, after)) if before or after else x


def causal_mask(scores: Tensor, *, memory: int = 0) -> Tensor:
    """-∞ at keys after their query. The first `memory` keys come before all queries."""
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1 + memory)
    return scores.masked_fill(ahead, float("-inf"))


class Fused(nn.Module):
    """softmax(QKᵀ·scale + bias)V in one kernel, which keeps no score matrix if the device has such a kernel.

    The scale is 1/√K by default. `grouped`: several query heads read one head of keys and values.
    """

    def __init__(self, *, causal: bool = False, scale: float | None = None, grouped: bool = False) -> None:
        super().__init__()
        self.causal, self.grouped, self.scale = causal, grouped, scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=self.causal, scale=self.scale, enable_gqa=self.grouped
        )


class TableUser(nn.Module):
    """A leaf with a table of its own, or with a shared one."""

    def __init__(self, *shape: int, shared: Table | None = None) -> None:
        super().__init__()
        self.weight = None if shared else Table(*shape).weight
        self.shared_table = (shared,)  # in a tuple, so that torch does not register it

    @property
    def table(self) -> Tensor:
        """The shared table, or its own."""
        (shared,) = self.shared_table
        return shared.weight if shared else self.get_parameter("weight")


class GeluTanh(nn.GELU):
    """GELU by the tanh formula (GPT-2's)."""

    def __init__(self) -> None:
        super().__init__(approximate="tanh")


class GeluQuick(nn.Module):
    """x·sigmoid(1.702·x), GELU's first approximation (Hendrycks and Gimpel 2016, §2)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1.702 * x).sigmoid()


ACTIVATIONS: Final[dict[ActKind, type[nn.Module]]] = {
    "gelu": nn.GELU,
    "gelu_quick": GeluQuick,
    "gelu_tanh": GeluTanh,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
}


def split_heads(x_BND: Tensor, heads: int) -> Tensor:
    """(B, N, D) -> (B, H, N, K)."""
    return x_BND.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x_BHNK: Tensor) -> Tensor:
    """(B, H, N, K) -> (B, N, D)."""
    return x_BHNK.transpose(1, 2).flatten(2)


class Chain(nn.Module):
    """Leaves by name, one after the other; an option that is off is None, and no leaf."""

    def __init__(self, **leaves: nn.Module | None) -> None:
        super().__init__()
        for name, leaf in leaves.items():
            if leaf is not None:
                self.add_module(name, leaf)

    def forward(self, x: Tensor) -> Tensor:
        for leaf in self.children():
            x = leaf(x)
        return x


class FixedMask(nn.Module):
    """-∞ at the `shut` pairs of a query and a key. Without scores, a boolean mask of the pairs that may be read."""

    shut: Tensor

    def __init__(self, shut: Tensor) -> None:
        super().__init__()
        self.register_buffer("shut", shut.to(torch.empty(0).device), persistent=False)

    def forward(self, scores: Tensor | None) -> Tensor:
        return self.shut.logical_not() if scores is None else scores.masked_fill(self.shut, float("-inf"))
