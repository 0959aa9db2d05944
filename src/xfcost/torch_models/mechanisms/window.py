"""Attention inside windows of the grid, shifted or not, with biases of pairs and scaled cosine scores; or along axes.

B batch, N tokens, G windows of T tokens with R offsets along r axes, D width, H heads, K head width; of axes: G lines
of L tokens.
"""

from __future__ import annotations

import math
from functools import partial, reduce
from itertools import product
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.grid_axes import Axis, axis_index
from xfcost.mechanisms.window import HIDDEN, Axial, Window
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import FixedMask, Leaf, Linear, drawn, split_groups


class LogCpb(nn.Module):
    """A network's output per offset, looked up for each pair: -> (H, T, T) (Liu et al. 2022, §3.3)."""

    offsets_Rr: Tensor

    def __init__(self, window: tuple[int, ...], heads: int) -> None:
        super().__init__()
        self.fc1 = Linear(len(window), HIDDEN)
        self.act = nn.ReLU()
        self.fc2 = Linear(HIDDEN, heads, bias=False)
        self.sigmoid = Leaf(sixteen_sigmoid)
        self.lookup = OffsetLookup(window)
        offsets_Rr = log_offsets(window).to(self.fc1.weight.device, self.fc1.weight.dtype)
        self.register_buffer("offsets_Rr", offsets_Rr, persistent=False)

    def forward(self) -> Tensor:
        return self.lookup(self.sigmoid(self.fc2(self.act(self.fc1(self.offsets_Rr)))))


def sixteen_sigmoid(x_RH: Tensor) -> Tensor:
    """16·sigmoid(x): a bias between 0 and 16."""
    return 16 * x_RH.sigmoid()


class OffsetLookup(nn.Module):
    """(R, H) -> (H, T, T): the row of each pair of tokens."""

    index_TT: Tensor

    def __init__(self, window: tuple[int, ...]) -> None:
        super().__init__()
        device = torch.empty(0).device
        self.register_buffer("index_TT", relative_index(window).to(device), persistent=False)

    def forward(self, table_RH: Tensor) -> Tensor:
        return table_RH[self.index_TT.flatten()].unflatten(0, self.index_TT.shape).permute(2, 0, 1)


class RelativeBias(OffsetLookup):
    """A learned table, looked up for each pair of a window: -> (H, T, T) (Liu et al. 2021, equation 4)."""

    def __init__(self, window: tuple[int, ...], heads: int) -> None:
        super().__init__(window)
        rows = prod(2 * side - 1 for side in window)
        self.weight = drawn(rows, heads, by=partial(nn.init.trunc_normal_, std=0.02))

    def forward(self) -> Tensor:  # type: ignore[override]
        return super().forward(self.weight)


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


class ScaledCosine(nn.Module):
    """Normalises queries and keys, and scales queries by 1/τ: (B, G, H, T, K) twice -> the same shapes."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.normalize = Leaf(F.normalize, dim=-1)
        self.temperature = Temperature(heads)
        self.scale = Leaf(scaled_heads)

    def forward(self, q_BGHTK: Tensor, k_BGHTK: Tensor) -> tuple[Tensor, Tensor]:
        q_BGHTK, k_BGHTK = self.normalize(q_BGHTK), self.normalize(k_BGHTK)
        return self.scale(q_BGHTK, self.temperature()), k_BGHTK


class Temperature(nn.Module):
    """1/τ of each head, learned as a logarithm that starts at log 10, at most log 100: -> (H, 1)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((heads, 1), math.log(10)))

    def forward(self) -> Tensor:
        return self.weight.clamp(max=math.log(100)).exp()


def scaled_heads(x_BGHTK: Tensor, factor_H1: Tensor) -> Tensor:
    """Each head times its factor: (B, G, H, T, K), (H, 1) -> (B, G, H, T, K)."""
    return x_BGHTK * factor_H1.unsqueeze(-1)


Sides = tuple[int, ...]


class WindowAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order."""

    def __init__(self, config: Window, place: Place) -> None:
        super().__init__()
        sides, window = place.grid.sides, config.window(place.grid)
        padded, shifts = config.padded(place.grid).sides, config.shifts(place.grid)
        self.heads = config.heads
        self.partition = Partition(sides, padded, window, shifts)
        whole = config.key_bias
        self.qkv = Linear(place.dim, 3 * place.dim, bias=config.projection_bias) if whole else None
        self.qv = None if whole else Linear(place.dim, 2 * place.dim)
        self.k = None if whole else Linear(place.dim, place.dim, bias=False)
        self.relative_bias = RelativeBias(window, config.heads) if config.bias == "relative" else None
        self.cpb = LogCpb(window, config.heads) if config.bias == "log_cpb" else None
        self.cosine = ScaledCosine(config.heads) if config.score == "cosine" else None
        self.core = Core(
            place.dim // config.heads,
            fused=place.fused,
            biased=config.bias != "none",
            scaled=self.cosine is None,
            mask=shift_mask(padded, window, shifts) if config.shift else None,
        )
        self.out = Linear(place.dim, place.dim, bias=config.biased_output)
        self.merge = Merge(sides, padded, window, shifts)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BGHTK, k_BGHTK, v_BGHTK = self._projected(self.partition(x_BND))
        bias_HTT = self._bias()
        if self.cosine is not None:
            q_BGHTK, k_BGHTK = self.cosine(q_BGHTK, k_BGHTK)
        y_BGTD = self.core(q_BGHTK, k_BGHTK, v_BGHTK, bias_HTT).transpose(2, 3).flatten(3)
        return self.merge(self.out(y_BGTD))

    def _projected(self, x_BGTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: (B, G, H, T, K) each."""
        if self.qkv is not None:
            q, k, v = self.qkv(x_BGTD).chunk(3, dim=-1)
        else:
            (q, v), k = self.qv(x_BGTD).chunk(2, dim=-1), self.k(x_BGTD)  # type: ignore[misc]
        q_BGHTK, k_BGHTK, v_BGHTK = (split_groups(part, self.heads) for part in (q, k, v))
        return q_BGHTK, k_BGHTK, v_BGHTK

    def _bias(self) -> Tensor | None:
        """The bias of every window's scores: (H, T, T)."""
        network = self.relative_bias or self.cpb
        return None if network is None else network()


class Partition(nn.Module):
    """Pads to full windows, rolls back by the shift, and cuts: (B, N, D) -> (B, G, T, D)."""

    def __init__(self, sides: Sides, padded: Sides, window: Sides, shifts: Sides) -> None:
        super().__init__()
        self.sides, self.shifts = sides, shifts
        self.pad = [0, 0] + [
            n for side, more in reversed(list(zip(sides, padded, strict=True))) for n in (0, more - side)
        ]
        self.cut = [n for side, w in zip(padded, window, strict=True) for n in (side // w, w)]

    def forward(self, x_BND: Tensor) -> Tensor:
        x = x_BND.unflatten(1, self.sides)
        if any(self.pad):
            x = F.pad(x, self.pad)
        if any(self.shifts):
            x = x.roll([-shift for shift in self.shifts], dims=list(range(1, len(self.sides) + 1)))
        return cut_windows(x, self.cut)


class Merge(nn.Module):
    """The inverse of `Partition`: (B, G, T, D) -> (B, N, D)."""

    def __init__(self, sides: Sides, padded: Sides, window: Sides, shifts: Sides) -> None:
        super().__init__()
        self.sides, self.padded, self.window, self.shifts = sides, padded, window, shifts

    def forward(self, x_BGTD: Tensor) -> Tensor:
        rank = len(self.sides)
        counts = [side // w for side, w in zip(self.padded, self.window, strict=True)]
        x = x_BGTD.unflatten(2, self.window).unflatten(1, counts)
        pairs = [axis for side in range(rank) for axis in (1 + side, 1 + rank + side)]
        x = x.permute(0, *pairs, 2 * rank + 1)
        for side in range(rank):
            x = x.flatten(1 + side, 2 + side)
        if any(self.shifts):
            x = x.roll(list(self.shifts), dims=list(range(1, rank + 1)))
        for axis, side in enumerate(self.sides):
            x = x.narrow(axis + 1, 0, side)
        return x.flatten(1, rank)


def shift_mask(padded: Sides, window: Sides, shifts: Sides) -> nn.Module:
    """Shuts pairs of tokens that were not neighbours before the roll, if there is one: on (…, G, H, T, T)."""
    return FixedMask(shifted_apart(padded, window, shifts).unsqueeze(1)) if any(shifts) else nn.Identity()


def cut_windows(x: Tensor, cut: list[int]) -> Tensor:
    """(B, side, …, D) -> (B, G, T, D); `cut` holds (windows, window) for each side."""
    rank = len(cut) // 2
    for side in reversed(range(rank)):
        x = x.unflatten(1 + side, (cut[2 * side], cut[2 * side + 1]))
    counts = [1 + 2 * side for side in range(rank)]
    inside = [2 + 2 * side for side in range(rank)]
    return x.permute(0, *counts, *inside, 2 * rank + 1).flatten(1 + rank, 2 * rank).flatten(1, rank)


def shifted_apart(padded: Sides, window: Sides, shifts: Sides) -> Tensor:
    """True for tokens of a rolled window from different regions of the grid: (G, T, T), on the CPU."""
    with torch.device("cpu"):
        region = torch.zeros(1, *padded, 1, dtype=torch.long)
        for axis, (side, w, shift) in enumerate(zip(padded, window, shifts, strict=True)):
            along = torch.zeros(side, dtype=torch.long)
            if shift:
                along[side - w : side - shift] = 1
                along[side - shift :] = 2
            shape = [1] * (len(padded) + 2)
            shape[axis + 1] = side
            region = region * 3 + along.reshape(shape)
        cut = [n for side, w in zip(padded, window, strict=True) for n in (side // w, w)]
        region_GT = cut_windows(region, cut)[0, :, :, 0]
        return region_GT[:, :, None] != region_GT[:, None, :]


class AxialAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order. Several axes are summed."""

    def __init__(self, config: Axial, place: Place) -> None:
        super().__init__()
        self.names = config.axes(place.grid)
        if len(self.names) == 1:
            self.inner = AxisLines(self.names[0], config, place)
            return
        for name in self.names:
            self.add_module(name, AxisLines(name, config, place))
        self.sum = Leaf(added)

    def forward(self, x_BND: Tensor) -> Tensor:
        if len(self.names) == 1:
            return self.inner(x_BND)
        return self.sum(*(self.get_submodule(name)(x_BND) for name in self.names))


class AxisLines(nn.Module):
    """Attention within each line along one axis: (B, N, D) -> (B, N, D)."""

    def __init__(self, axis: Axis, config: Axial, place: Place) -> None:
        super().__init__()
        inner = config.inner(place.dim)
        self.heads, self.sides = config.heads, place.grid.sides
        self.axis = 1 + axis_index(axis, place.grid)
        self.others = tuple(side for number, side in enumerate(self.sides, 1) if number != self.axis)
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        self.core = Core(inner // config.heads, fused=place.fused, causal=bool(config.causal))
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BGLD = x_BND.unflatten(1, self.sides).movedim(self.axis, -2).flatten(1, -3)
        q_BGHLK, k_BGHLK, v_BGHLK = (
            part.unflatten(-1, (self.heads, -1)).transpose(2, 3) for part in self.qkv(x_BGLD).chunk(3, dim=-1)
        )
        y_BGLD = self.out(self.core(q_BGHLK, k_BGHLK, v_BGHLK).transpose(2, 3).flatten(3))
        return y_BGLD.unflatten(1, self.others).movedim(-2, self.axis).flatten(1, -2)


def added(*parts: Tensor) -> Tensor:
    """The sum of tensors of one shape."""
    return reduce(torch.add, parts)
