"""Clusters of tokens found by online k-means, and blocks beside them.

B batch, N tokens, M tokens of the whole batch, H heads, C clusters, K head width; G blocks of T tokens, which read R.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# The weight of a centroid in its moving average.
DECAY: Final = 0.999


class Distances(nn.Module):
    """Cosine similarities to the centroids: (B, H, N, K) -> (B, H, N, C). They only choose: no gradient passes.

    Similarities to one centroid are contiguous in memory, for the search: transposing them later would cost more. In
    training the centroids move once all `sides` have come: queries and keys, or both in one.
    """

    centroids_HCK: Tensor

    def __init__(self, heads: int, count: int, width: int, sides: int) -> None:
        super().__init__()
        self.sides, self.come = sides, list[tuple[Tensor, Tensor]]()
        self.register_buffer("centroids_HCK", F.normalize(torch.randn(heads, count, width), dim=-1))

    def forward(self, x_BHNK: Tensor) -> Tensor:
        near_BHNC = (self.centroids_HCK @ x_BHNK.detach().transpose(-2, -1)).transpose(-2, -1)
        if self.training:
            self.come.append((x_BHNK.detach(), near_BHNC))
            if len(self.come) == self.sides:
                self.update(*self.come)
                self.come.clear()
        return near_BHNC

    @torch.no_grad()
    def update(self, *sides: tuple[Tensor, Tensor]) -> None:
        """A step of online k-means (Roy et al. 2021, algorithm 1): each centroid moves towards its members' mean.

        `sides` are (vectors, similarities) of queries and of keys. A centroid without members stays.
        """
        total_HCK, members_HC1 = torch.zeros_like(self.centroids_HCK), torch.zeros_like(self.centroids_HCK[..., :1])
        for x_BHNK, near_BHNC in sides:
            x_HMK = x_BHNK.transpose(0, 1).flatten(1, 2)
            nearest_HM1 = near_BHNC.argmax(-1).transpose(0, 1).flatten(1).unsqueeze(-1)
            total_HCK = total_HCK.scatter_add(1, nearest_HM1.expand_as(x_HMK), x_HMK)
            members_HC1 = members_HC1.scatter_add(1, nearest_HM1, torch.ones_like(x_HMK[..., :1]))
        mean_HCK = torch.where(members_HC1 > 0, F.normalize(total_HCK, dim=-1), self.centroids_HCK)
        self.centroids_HCK.mul_(DECAY).add_(mean_HCK, alpha=1 - DECAY)


def beside_block(tokens: int, block: int, after: int, *, causal: bool) -> Tensor:
    """Padding and, if causal, later tokens, of a block and its neighbours: (G, 1, T, R)."""
    blocks = -(-tokens // block)
    query_GT1 = torch.arange(blocks * block).unflatten(0, (blocks, block)).unsqueeze(-1)
    key_G1R = torch.arange(-block, (blocks + after) * block).unfold(0, (2 + after) * block, block).unsqueeze(1)
    shut_GTR = (key_G1R < 0).logical_or(key_G1R >= tokens)
    shut_GTR = shut_GTR.logical_or(key_G1R > query_GT1) if causal else shut_GTR.expand(-1, block, -1)
    return shut_GTR.unsqueeze(1)


def beside_sorted(tokens: int, blocks: int, block: int, *, causal: bool) -> Tensor:
    """In a block behind its sorted one: padding (U, 1, 2T) or, if causal, later tokens (1, T, 2T)."""
    own = torch.ones(1, block, block, dtype=torch.bool).triu(1)
    if not causal:
        own = (torch.arange(blocks * block) >= tokens).unflatten(0, (blocks, 1, block))
    return F.pad(own, (block, 0))
