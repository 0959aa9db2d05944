"""Norms as leaves. They skip the initialisation of `meta` weights.

B batch, N tokens, D width.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from xfcost.formulas.component import NormKind
from xfcost.torch_models.shared.leaves import Uninitialised


class LayerNorm(Uninitialised, nn.LayerNorm):
    """nn.LayerNorm."""


class RmsNorm(Uninitialised, nn.RMSNorm):
    """nn.RMSNorm."""


class BatchNorm(Uninitialised, nn.BatchNorm1d):
    """nn.BatchNorm1d over the last axis: (…, D) -> (…, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view_as(x)


class GridNorm(Uninitialised, nn.BatchNorm1d):
    """Batch norm of channels before any number of grid axes: (B, D, Y, X) -> (B, D, Y, X)."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 - as torch calls it
        """Accept any rank."""


class GroupNorm(Uninitialised, nn.GroupNorm):
    """nn.GroupNorm with one group, over all tokens: (B, N, D) -> (B, N, D)."""

    def __init__(self, width: int) -> None:
        super().__init__(1, width)

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(x_BND.transpose(1, 2)).transpose(1, 2)


class Affine(nn.Module):
    """x · scale + shift for each column: (…, D) -> (…, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bias


_NORMS: Final[dict[NormKind, type[nn.Module]]] = {
    "layer_norm": LayerNorm,
    "rms_norm": RmsNorm,
    "batch_norm": BatchNorm,
    "group_norm": GroupNorm,
    "affine": Affine,
}


def norm(kind: NormKind, width: int) -> nn.Module | None:
    """The norm `kind` on (B, N, D), or None."""
    return None if kind == "none" else _NORMS[kind](width)
