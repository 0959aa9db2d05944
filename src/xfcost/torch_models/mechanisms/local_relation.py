"""Module of `mechanisms/local_attention.py`: weights from scalar queries and keys and a prior of the offset.

B batch, N positions, P output positions, D width, G groups, C channels of a group, W positions of a window.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.local_attention import LocalRelation, Neighbourhood
from xfcost.torch_models.shared.leaves import Add, Leaf, Linear, Softmax, WeightedSum
from xfcost.torch_models.shared.neighbours import Centres, Gather, centres

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
        return Centres(self.windows) if self.windows.stride > 1 else None

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BPG = self.q(centres(x_BND, self.windows))
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
