"""Modules of `mechanisms/window.py`: biases of the pairs in a window.

T tokens of a window with R offsets along r axes, H heads.
"""

from __future__ import annotations

from itertools import product
from math import prod

import torch
from torch import Tensor, nn

from xfcost.mechanisms.window import HIDDEN
from xfcost.torch_models.shared.leaves import Linear


class RelativeBias(nn.Module):
    """A learned table, looked up for each pair of a window: -> (H, T, T) (Liu et al. 2021, equation 4)."""

    index_TT: Tensor

    def __init__(self, window: tuple[int, ...], heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(prod(2 * side - 1 for side in window), heads))
        if not self.weight.is_meta:
            nn.init.trunc_normal_(self.weight, std=0.02)
        self.register_buffer("index_TT", relative_index(window).to(self.weight.device), persistent=False)

    def forward(self) -> Tensor:
        return for_pairs(self.weight, self.index_TT)


class LogCpb(nn.Module):
    """A network's output per offset, looked up for each pair: -> (H, T, T) (Liu et al. 2022, §3.3)."""

    offsets_Rr: Tensor

    def __init__(self, window: tuple[int, ...], heads: int) -> None:
        super().__init__()
        self.fc1 = Linear(len(window), HIDDEN)
        self.act = nn.ReLU()
        self.fc2 = Linear(HIDDEN, heads, bias=False)
        self.sigmoid = SixteenSigmoid()
        self.lookup = Lookup(window)
        offsets_Rr = log_offsets(window).to(self.fc1.weight.device, self.fc1.weight.dtype)
        self.register_buffer("offsets_Rr", offsets_Rr, persistent=False)

    def forward(self) -> Tensor:
        return self.lookup(self.sigmoid(self.fc2(self.act(self.fc1(self.offsets_Rr)))))


class SixteenSigmoid(nn.Module):
    """16·sigmoid(x): a bias between 0 and 16."""

    def forward(self, x_RH: Tensor) -> Tensor:
        return 16 * x_RH.sigmoid()


class Lookup(nn.Module):
    """(R, H) -> (H, T, T): the row of each pair of tokens."""

    index_TT: Tensor

    def __init__(self, window: tuple[int, ...]) -> None:
        super().__init__()
        device = torch.empty(0).device
        self.register_buffer("index_TT", relative_index(window).to(device), persistent=False)

    def forward(self, table_RH: Tensor) -> Tensor:
        return for_pairs(table_RH, self.index_TT)


def for_pairs(table_RH: Tensor, index_TT: Tensor) -> Tensor:
    """(R, H) -> (H, T, T)."""
    tokens = index_TT.shape[0]
    return table_RH[index_TT.flatten()].unflatten(0, (tokens, tokens)).permute(2, 0, 1)


def relative_index(window: tuple[int, ...]) -> Tensor:
    """The table row of each pair of tokens: (T, T), on the CPU."""
    with torch.device("cpu"):
        places_TR = torch.tensor(list(product(*(range(side) for side in window))))
        away_TTR = places_TR[:, None] - places_TR[None, :]
        index_TT = torch.zeros(away_TTR.shape[:2], dtype=torch.long)
        for axis, side in enumerate(window):
            index_TT = index_TT * (2 * side - 1) + away_TTR[..., axis] + side - 1
    return index_TT


def log_offsets(window: tuple[int, ...]) -> Tensor:
    """All offsets, log-spaced, in the order of the index: (R, r), on the CPU.

    ±(W-1) maps to ±log₂9/log₂8 for any W. Fine-tuned models keep the scale of their training window: other numbers, the
    same work. A side of one token has only the offset 0.
    """
    with torch.device("cpu"):
        along = [torch.arange(1 - side, side, dtype=torch.float64) * 8 / max(side - 1, 1) for side in window]
        offsets_Rr = torch.cartesian_prod(*along).reshape(-1, len(window))
        return offsets_Rr.sign() * (1 + offsets_Rr.abs()).log2() / 3
