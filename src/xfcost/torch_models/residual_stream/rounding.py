"""Sums of the residual stream in float64, and how far rounding may take the model's from them.

An addition in the model's dtype is off by at most u·|sum|, u half of the dtype's epsilon. Bounds are of first order in
u. (…, N, D) tensors.
"""

from __future__ import annotations

import copy
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.residual_stream import SumCheck
from xfcost.torch_models.shared.norms import GroupNorm, LayerNorm, RmsNorm

# The axes that a norm takes its mean and its variance over.
_OVER: Final[dict[type[nn.Module], tuple[int, ...]]] = {LayerNorm: (-1,), RmsNorm: (-1,), GroupNorm: (-2, -1)}


def unit_of(dtype: torch.dtype) -> float:
    """u; twice that of float64, whose sums here are rounded themselves."""
    return torch.finfo(dtype).eps / (1 if dtype == torch.float64 else 2)


class Worked(NamedTuple):
    """A stream in float64, and the most by which each element of the model's may differ."""

    value: Tensor
    bound: Tensor


def entering(x: Tensor) -> Worked:
    """What enters a block, as it is."""
    return Worked(x.double(), torch.zeros_like(x, dtype=torch.float64))


def plus(stream: Worked, delta: Tensor, unit: float) -> Worked:
    """The stream with `delta` added to its first rows: to all, or to the special tokens."""
    rows = delta.shape[-2]
    value, bound = stream.value.clone(), stream.bound.clone()
    value[..., :rows, :] += delta.double()
    bound[..., :rows, :] += unit * (value[..., :rows, :].abs() + bound[..., :rows, :])
    return Worked(value, bound)


def through(stream: Worked, modules: tuple[nn.Module, ...], unit: float) -> Worked:
    """The sum through the norm or the activation behind it."""
    for module in modules:
        if isinstance(module, nn.ReLU):  # rounds nothing, and takes no two numbers further apart
            stream = Worked(stream.value.relu(), stream.bound)
        else:
            stream = _normed(module, stream, unit)
    return stream


def compared(out: Tensor, stream: Worked) -> SumCheck:
    """The model's own stream compared with the sum."""
    differences = (out.double() - stream.value).abs()
    return SumCheck(
        difference=float(differences.max()),
        bound=float(stream.bound.max()),
        within=bool((differences <= stream.bound).all()),
    )


def _normed(module: nn.Module, stream: Worked, unit: float) -> Worked:
    """The norm in float64, with the bound of (x - μ)/σ · weight + bias for what x may differ and for its own rounding.

    A mean of n numbers is taken to be off by n·u of their mean size.
    """
    double: Any = copy.deepcopy(module).double()
    if getattr(double, "eps", 0.0) is None:  # nn.RMSNorm's default is the epsilon of the dtype
        double.eps = torch.finfo(next(module.parameters()).dtype).eps
    value, (x, off) = double(stream.value), stream
    weight, bias = _size(double, "weight", 1.0), _size(double, "bias", 0.0)
    own = 4 * unit * (value.abs() + bias)
    if type(module) not in _OVER:  # an affine map per column, whatever x is
        variance = _size(double, "running_var", 1.0) + getattr(double, "eps", 0.0)
        return Worked(value, weight * variance**-0.5 * off + own)
    over = _OVER[type(module)]
    numbers = prod(x.shape[axis] for axis in over)
    if not isinstance(module, RmsNorm):
        mean_off = off.mean(over, keepdim=True) + numbers * unit * x.abs().mean(over, keepdim=True)
        x = x - x.mean(over, keepdim=True)
        off = off + mean_off + unit * x.abs()
    variance = x.square().mean(over, keepdim=True) + double.eps
    variance_off = 2 * (x.abs() * off).mean(over, keepdim=True) + numbers * unit * variance
    relative = variance_off / (2 * variance) + 2 * unit
    return Worked(value, weight * variance**-0.5 * (off + x.abs() * relative) + own)


def _size(module: nn.Module, name: str, default: float) -> Tensor:
    """|weight|, |bias| or the variance of a norm; `default` where it has none."""
    found = getattr(module, name, None)
    return torch.tensor(default, dtype=torch.float64) if found is None else found.abs()
