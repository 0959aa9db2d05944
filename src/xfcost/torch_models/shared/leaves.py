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


class AdapterLinear(Linear):
    """A or B of LoRA: trained, where all other weights are frozen."""


def trained(model: nn.Module) -> nn.Module:
    """`model`, whose parameters now need a gradient; where it has adapters, only theirs."""
    adapters = [module for module in model.modules() if isinstance(module, AdapterLinear)]
    if not adapters:
        return model.requires_grad_()
    for module in adapters:
        module.requires_grad_()
    return model


# α/r of an adapter; no cost depends on it.
SCALING: Final = 2.0


def scaled_onto(y: Tensor, update: Tensor, *, start: int) -> Tensor:
    """What an adapter adds to the columns of y from `start` on, in place: (…, D'), (…, K) -> (…, D')."""
    y.narrow(-1, start, update.shape[-1]).add_(update * SCALING)
    return y


class Leaf(nn.Module):
    """A function as a leaf, with its options: of inputs x it gives function(x, **options)."""

    def __init__(self, function: Callable[..., Any], /, **options: Any) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, **self.options)


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
