"""Stage entries, which change the grid or join an earlier stage's output.

B batch, N tokens, D width, Y and X the grid's sides; S learned queries, E their width or the earlier stage's, P tokens
before they are repeated.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import Concatenate, PatchMerging, PoolingAttention, Upsample
from xfcost.torch_models.shared.attention import Reading
from xfcost.torch_models.shared.leaves import Add, Leaf, Linear, Table, joined
from xfcost.torch_models.shared.norms import LayerNorm, norm


def merged_neighbours(x_BND: Tensor, *, sides: tuple[int, int]) -> Tensor:
    """2×2 neighbours concatenated, odd grids padded: (B, N, D) -> (B, ⌈N/4⌉, 4D)."""
    x_BYXD = x_BND.unflatten(1, sides)
    odd = [side % 2 for side in sides]
    if any(odd):
        x_BYXD = F.pad(x_BYXD, (0, 0, 0, odd[1], 0, odd[0]))
    x = x_BYXD.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # (B, Y/2, 2, X/2, 2, D)
    return x.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)  # columns before rows, as Swin's weights have it


class PatchMergingLayer(nn.Module):
    """(B, N, D) -> (B, ⌈N/4⌉, D')."""

    def __init__(self, config: PatchMerging, place: Place) -> None:
        super().__init__()
        height, width = place.grid.sides
        self.gather = Leaf(merged_neighbours, sides=(height, width))
        self.post = config.norm == "post"
        self.norm = LayerNorm(place.out_dim if self.post else 4 * place.dim)
        self.reduction = Linear(4 * place.dim, place.out_dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        x = self.gather(x_BND)
        return self.norm(self.reduction(x)) if self.post else self.reduction(self.norm(x))


class PoolingByAttention(nn.Module):
    """(B, N, D) -> (B, S, E)."""

    def __init__(self, config: PoolingAttention, place: Place) -> None:
        super().__init__()
        width, joining = place.out_dim, config.residual
        self.place = None if joining == "none" else joining.place
        kind = "none" if joining == "none" else joining.norm
        self.seeds = Table(1, config.count, width)
        self.seeds_norm = norm(kind, width) if self.place == "pre" else None
        self.tokens_norm = norm(kind, place.dim) if self.place == "pre" else None
        self.inner = Reading(
            (width, place.dim),
            config.inner(place),
            config.heads,
            bias=config.projection_bias,
            fused=place.fused,
            output=config.output_projection,
        )
        self.add = None if joining == "none" else Add()
        self.norm = norm(kind, width) if self.place in ("post", "res_post") else None

    def forward(self, x_BND: Tensor) -> Tensor:
        seeds_1SE = self.seeds()
        queries_1SE = seeds_1SE if self.seeds_norm is None else self.seeds_norm(seeds_1SE)
        y_BSE: Tensor = self.inner(queries_1SE, x_BND if self.tokens_norm is None else self.tokens_norm(x_BND))
        if self.place == "res_post" and self.norm is not None:
            y_BSE = self.norm(y_BSE)
        if self.add is not None:
            y_BSE = self.add(y_BSE, seeds_1SE)
        return self.norm(y_BSE) if self.place == "post" and self.norm is not None else y_BSE


class UpsampleLayer(nn.Module):
    """(B, P, D), the earlier stage's output (B, N, D) -> (B, N, D)."""

    def __init__(self, config: Upsample, place: Place) -> None:
        super().__init__()
        if place.memory is None:
            raise TypeError("no earlier stage is added here")
        self.repeat = Leaf(repeated, factor=config.factor, length=place.memory.total, separate_cls=config.separate_cls)
        self.add = Add()

    def forward(self, x_BPD: Tensor, skip_BND: Tensor) -> Tensor:
        return self.add(self.repeat(x_BPD), skip_BND)


def repeated(x_BPD: Tensor, *, factor: int, length: int, separate_cls: bool) -> Tensor:
    """(B, P, D) -> (B, N, D). A separate [CLS] is not repeated; missing tokens at the end are zeros."""
    if not separate_cls:
        return x_BPD.repeat_interleave(factor, dim=1)[:, :length]
    parts = [x_BPD[:, :1], x_BPD[:, 1:].repeat_interleave(factor, dim=1)[:, : length - 1]]
    missing = length - 1 - (x_BPD.shape[1] - 1) * factor
    if missing > 0:
        parts.append(torch.zeros_like(x_BPD[:, :1]).expand(-1, missing, -1))
    return torch.cat(parts, dim=1)


class ConcatenateLayer(nn.Module):
    """(B, N, D), the earlier stage's output (B, N, E) -> (B, N, E+D)."""

    def __init__(self, config: Concatenate, place: Place) -> None:
        super().__init__()
        self.concatenate = Leaf(joined, dim=-1)

    def forward(self, x_BND: Tensor, earlier_BNE: Tensor) -> Tensor:
        return self.concatenate(earlier_BNE, x_BND)
