"""Module of `mechanisms/local_attention.py`: attention to the window around each position.

B batch, N positions, D width, H heads, K head width, W positions of a window, R axes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.local_attention import LocalAttention, Neighbourhood
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import in_rows, on_grid
from xfcost.torch_models.shared.leaves import Add, Leaf, Linear
from xfcost.torch_models.shared.neighbours import Gather


class LocalSelfAttention(nn.Module):
    """(B, N, D) -> (B, N', D), tokens in raster order."""

    def __init__(self, config: LocalAttention, place: Place) -> None:
        super().__init__()
        windows = config.windows(place.grid)
        self.config, self.sides, self.heads = config, place.grid.sides, config.heads
        self.qkv = Linear(place.dim, 3 * place.dim, bias=False)
        self.gather_keys = Gather(windows, config.heads)
        relative = config.position == "relative"
        self.positions = OffsetEmbeddings(windows, config.heads, place.dim // config.heads) if relative else None
        self.add_positions = Add() if relative else None
        self.gather_values = Gather(windows, config.heads)
        self.core = Core(place.dim // config.heads, fused=place.fused, scaled=False)
        self.pool = self.residual_pool()

    def residual_pool(self) -> nn.Module | None:
        """The same mean pooling for the residual stream."""
        cell, stride = self.config.cell(Grid(self.sides)), self.config.stride
        return Leaf(cell_mean, sides=self.sides, cell=cell, stride=stride) if stride > 1 else None

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BND, k_BND, v_BND = self.qkv(x_BND).chunk(3, dim=-1)
        q_BNH1K = q_BND.unflatten(-1, (self.heads, 1, -1))
        k_BNHWK, v_BNHWK = self.gather_keys(k_BND), self.gather_values(v_BND)
        if self.positions is not None and self.add_positions is not None:
            k_BNHWK = self.add_positions(k_BNHWK, self.positions())
        y_BND = self.core(q_BNH1K, k_BNHWK, v_BNHWK).flatten(2)
        return y_BND if self.pool is None else self.pool(y_BND)


class OffsetEmbeddings(nn.Module):
    """Learned embeddings of each window position, the axes' columns concatenated: -> (H, W, K)."""

    def __init__(self, windows: Neighbourhood, heads: int, head_dim: int) -> None:
        super().__init__()
        self.size, self.rank = windows.size, windows.rank
        self.weight = nn.Parameter(torch.empty(self.rank, heads, self.size, head_dim // self.rank))
        if not self.weight.is_meta:
            nn.init.normal_(self.weight)

    def forward(self) -> Tensor:
        heads, rank = self.weight.shape[1], self.rank
        spread = []
        for axis, weight_HSK in enumerate(self.weight.unbind(0)):
            places = [self.size if other == axis else 1 for other in range(rank)]
            spread.append(weight_HSK.view(heads, *places, -1).expand(-1, *[self.size] * rank, -1))
        return torch.cat(spread, dim=-1).flatten(1, rank)


def cell_mean(x_BND: Tensor, *, sides: tuple[int, ...], cell: tuple[int, ...], stride: int) -> Tensor:
    """Means of cells of s positions per axis, fewer at the far border: (B, N, D) -> (B, N', D)."""
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(sides) - 1]
    return in_rows(pool(on_grid(x_BND, sides), cell, stride, ceil_mode=True))
