"""The window around each position, or the same position of each patch: attention, and local relation of scalar queries.

B batch, N positions, P output positions, D width, H heads, K head width, G groups (unfolded: positions in a patch, T
tokens each), C channels of a group, W positions of a window, R axes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation, Neighbourhood, Unfolded
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import in_rows, on_grid
from xfcost.torch_models.shared.leaves import Add, Leaf, Linear, Softmax, WeightedSum, drawn, through
from xfcost.torch_models.shared.windows import Gather, centres


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
        return through(y_BND, self.pool)


class OffsetEmbeddings(nn.Module):
    """Learned embeddings of each window position, the axes' columns concatenated: -> (H, W, K)."""

    def __init__(self, windows: Neighbourhood, heads: int, head_dim: int) -> None:
        super().__init__()
        self.size, self.rank = windows.size, windows.rank
        self.weight = drawn(self.rank, heads, self.size, head_dim // self.rank, by=nn.init.normal_)

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


# The similarity of a missing key in the public kernel.
NO_KEY = -100.0


class LocalRelationLayer(nn.Module):
    """(B, N, D) -> (B, P, D), tokens in raster order."""

    def __init__(self, config: LocalRelation, place: Place) -> None:
        super().__init__()
        windows, groups = config.windows(place.grid), config.groups(place.dim)
        self.windows, self.dim = windows, place.dim
        self.q = Linear(place.dim, groups, bias=False)
        self.k = Linear(place.dim, groups, bias=False)
        self.gather_keys = Gather(windows, groups)
        self.gather_values = Gather(windows, groups, filled=groups * config.share - place.dim)
        self.prior = GeometryPrior(windows, config.hidden(place.dim), groups)
        self.scores = Leaf(similarities)
        self.mask = BorderMask(windows)
        self.add_prior = Add()
        self.softmax = Softmax()
        self.weighted_sum = WeightedSum()
        self.out = Linear(place.dim, place.dim, bias=False)

    def residual_pool(self) -> nn.Module | None:
        """The residual stream at the output positions."""
        return Leaf(centres, windows=self.windows) if self.windows.stride > 1 else None

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BPG = self.q(centres(x_BND, windows=self.windows))
        k_BPGW = self.gather_keys(self.k(x_BND)).squeeze(-1)
        scores_BPGW = self.mask(self.scores(q_BPG, k_BPGW))
        weights_BPGW = self.softmax(self.add_prior(scores_BPGW, self.prior()))
        y_BPGC = self.weighted_sum(weights_BPGW.unsqueeze(-2), self.gather_values(x_BND)).squeeze(-2)
        return self.out(y_BPGC.flatten(2)[..., : self.dim])


class GeometryPrior(nn.Module):
    """A two-layer network of the offsets in a window, along R axes: -> (G, W)."""

    offsets_1WR: Tensor

    def __init__(self, windows: Neighbourhood, hidden: int, groups: int) -> None:
        super().__init__()
        self.fc1 = Linear(windows.rank, hidden, bias=False)
        self.act = nn.ReLU()
        self.fc2 = Linear(hidden, groups, bias=False)
        along = torch.arange(windows.size, dtype=self.fc1.weight.dtype) - windows.reach
        offsets_WR = torch.cartesian_prod(*[along] * windows.rank).reshape(-1, windows.rank)
        self.register_buffer("offsets_1WR", offsets_WR.unsqueeze(0), persistent=False)

    def forward(self) -> Tensor:
        prior_1WG: Tensor = self.fc2(self.act(self.fc1(self.offsets_1WR)))
        return prior_1WG.squeeze(0).T


def similarities(q_BPG: Tensor, k_BPGW: Tensor) -> Tensor:
    """-(q - k)²: (B, P, G), (B, P, G, W) -> (B, P, G, W)."""
    return -(q_BPG.unsqueeze(-1) - k_BPGW).square()


class BorderMask(nn.Module):
    """A constant score at window positions outside the grid: on (B, P, G, W)."""

    over_P1W: Tensor

    def __init__(self, windows: Neighbourhood) -> None:
        super().__init__()
        rank, over = windows.rank, torch.zeros([1] * (2 * windows.rank), dtype=torch.bool)
        for axis, (side, out) in enumerate(zip(windows.grid.sides, windows.out.sides, strict=True)):
            at_PW = torch.arange(out).unsqueeze(1) * windows.stride - windows.reach + torch.arange(windows.size)
            shape = [1] * (2 * rank)
            shape[axis], shape[rank + axis] = out, windows.size
            over = over | ((at_PW < 0) | (at_PW >= side)).reshape(shape)
        self.register_buffer("over_P1W", over.flatten(rank).flatten(0, rank - 1).unsqueeze(1), persistent=False)

    def forward(self, scores_BPGW: Tensor) -> Tensor:
        return scores_BPGW.masked_fill(self.over_P1W, NO_KEY)


class UnfoldedAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order."""

    def __init__(self, config: Unfolded, place: Place) -> None:
        super().__init__()
        inner, patch = config.inner(place.dim), config.patch
        self.heads, self.rank = config.heads, len(place.grid.sides)
        self.patches = tuple(side // patch for side in place.grid.sides)
        self.places = (patch,) * self.rank
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        self.core = Core(inner // config.heads, fused=place.fused)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BGHTK, k_BGHTK, v_BGHTK = (
            part.unflatten(-1, (self.heads, -1)).transpose(2, 3) for part in self.qkv(self.unfold(x_BND)).chunk(3, -1)
        )
        return self.fold(self.out(self.core(q_BGHTK, k_BGHTK, v_BGHTK).transpose(2, 3).flatten(3)))

    def unfold(self, x_BND: Tensor) -> Tensor:
        """Groups tokens by their position in the patch: (B, N, D) -> (B, G, T, D)."""
        cut = [side for pair in zip(self.patches, self.places, strict=True) for side in pair]
        x = x_BND.unflatten(1, cut).movedim([2 + 2 * axis for axis in range(self.rank)], [*range(1, 1 + self.rank)])
        return x.flatten(1 + self.rank, -2).flatten(1, self.rank)

    def fold(self, x_BGTD: Tensor) -> Tensor:
        """The inverse of `unfold`."""
        x = x_BGTD.unflatten(2, self.patches).unflatten(1, self.places)
        return x.movedim([*range(1, 1 + self.rank)], [2 + 2 * axis for axis in range(self.rank)]).flatten(1, -2)
