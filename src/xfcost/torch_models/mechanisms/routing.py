"""Module of `mechanisms/routing.py`: attention inside clusters of tokens, chosen by k-means.

B batch, N tokens, D width, H heads, K head width, C clusters of W queries and M keys (memory keys included), P = C·W
positions in clusters. Local heads: G blocks of T tokens, each reading R keys of its own and neighbouring blocks.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.routing import Routing
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import FixedMask, Leaf, Linear, drawn, join_heads, joined, split_heads

# The weight of a centroid in its moving average.
DECAY: Final = 0.999


class RoutingAttention(nn.Module):
    """(B, N, D) -> (B, N, D). Training moves the centroids; evaluation does not."""

    def __init__(self, config: Routing, place: Place) -> None:
        super().__init__()
        width, bias = config.head_width(place.dim), config.projection_bias
        self.config, self.heads = config, config.heads - config.local_heads
        count, window, *_ = config.sizes(place.grid)
        shared = config.shared_qk
        self.parts = 2 if shared else 3
        self.projection = "qv" if shared else "qkv"
        self.add_module(self.projection, Linear(place.dim, self.parts * self.heads * width, bias=bias))
        self.normalize = Leaf(F.normalize, dim=-1)
        self.distances = Distances(self.heads, count, width)
        self.choose = Leaf(nearest, window=window)
        self.choose_keys = None if shared else Leaf(nearest, window=window)
        self.gather = Leaf(gathered)
        memories = config.memories()
        self.memory_keys = Memory(self.heads, count, memories, width) if memories else None
        self.memory_values = Memory(self.heads, count, memories, width) if memories else None
        masked = bool(config.causal) or shared
        mask = Leaf(cluster_mask, memories=memories, causal=bool(config.causal), shared=shared) if masked else None
        self.core = ClusterCore(width, fused=place.fused, mask=mask)
        self.average = Leaf(averaged, tokens=place.grid.total)
        self.local_qkv, self.local, self.join = None, None, None
        if config.local_heads:
            self.local_qkv = Linear(place.dim, 3 * config.local_heads * width, bias=bias)
            self.local = Local(config, place, width)
            self.join = Leaf(joined, dim=1)
        self.out = Linear(config.heads * width, place.dim, bias=bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        parts = self.get_submodule(self.projection)(x_BND).chunk(self.parts, dim=-1)
        *sides, v_BHNK = (split_heads(part, self.heads) for part in parts)
        y_BHNK = self._routed(sides, v_BHNK)
        if self.local is not None and self.local_qkv is not None and self.join is not None:
            y_BHNK = self.join(self.local(self.local_qkv(x_BND)), y_BHNK)
        return self.out(join_heads(y_BHNK))

    def _routed(self, sides: list[Tensor], v_BHNK: Tensor) -> Tensor:
        """`sides` are queries and keys, or shared queries that serve as keys."""
        units = [self.normalize(x_BHNK) for x_BHNK in sides]
        near = [self.distances(x_BHNK) for x_BHNK in units]
        if self.training:
            self.distances.update(*zip(units, near, strict=True))
        at_q_BHCW = self.choose(near[0])
        if self.choose_keys is None:
            return self._attend(sides[0], units[0], v_BHNK, at_q_BHCW, at_q_BHCW)
        return self._attend(sides[0], sides[1], v_BHNK, at_q_BHCW, self.choose_keys(near[1]))

    def _attend(self, q_BHNK: Tensor, k_BHNK: Tensor, v_BHNK: Tensor, at_q: Tensor, at_k: Tensor) -> Tensor:
        """`at_q` and `at_k`, (B, H, C, W), are the token indices of each cluster."""
        q_BHCWK = self.gather(q_BHNK, at_q)
        k_BHCMK, v_BHCMK = self.gather(k_BHNK, at_k), self.gather(v_BHNK, at_k)
        if self.memory_keys is not None and self.memory_values is not None:
            k_BHCMK, v_BHCMK = self.memory_keys(k_BHCMK), self.memory_values(v_BHCMK)
        return self.average(self.core(q_BHCWK, k_BHCMK, v_BHCMK, at_q, at_k), at_q)


class Distances(nn.Module):
    """Cosine similarities to the centroids: (B, H, N, K) -> (B, H, N, C). They only choose tokens: no gradient passes.

    Similarities to one centroid are contiguous in memory, for the search: transposing them later would cost more.
    """

    centroids_HCK: Tensor

    def __init__(self, heads: int, count: int, width: int) -> None:
        super().__init__()
        self.register_buffer("centroids_HCK", F.normalize(torch.randn(heads, count, width), dim=-1))

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return (self.centroids_HCK @ x_BHNK.detach().transpose(-2, -1)).transpose(-2, -1)

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


def nearest(near_BHNC: Tensor, *, window: int) -> Tensor:
    """The tokens nearest to each centroid: (B, H, N, C) -> (B, H, C, W)."""
    return near_BHNC.transpose(-2, -1).topk(window, dim=-1).indices


def gathered(x_BHNK: Tensor, chosen_BHCW: Tensor) -> Tensor:
    """The tokens of each cluster: (B, H, N, K) -> (B, H, C, W, K)."""
    index_BHP1 = chosen_BHCW.flatten(2).unsqueeze(-1)
    gathered_BHPK = x_BHNK.gather(2, index_BHP1.expand(-1, -1, -1, x_BHNK.shape[-1]))
    return gathered_BHPK.unflatten(2, chosen_BHCW.shape[2:])


class Memory(nn.Module):
    """Learned keys (or values) of each cluster, before those of its tokens: (B, H, C, W, K) -> (B, H, C, M, K)."""

    def __init__(self, heads: int, count: int, memories: int, width: int) -> None:
        super().__init__()
        self.weight = drawn(heads, count, memories, width, by=nn.init.normal_)

    def forward(self, x_BHCWK: Tensor) -> Tensor:
        return torch.cat([self.weight.expand(x_BHCWK.shape[0], -1, -1, -1, -1), x_BHCWK], dim=3)


def cluster_mask(
    scores: Tensor | None, at_q_BHCW: Tensor, at_k_BHCW: Tensor, *, memories: int, causal: bool, shared: bool
) -> Tensor:
    """-∞ at later keys (causal), and at the query itself (shared) unless it is the only key.

    On scores (B, H, C, W, M). Without scores, a boolean mask of the keys that may be read.
    """
    query, key = at_q_BHCW.unsqueeze(-1), at_k_BHCW.unsqueeze(-2)
    if not shared:
        may_read = key <= query
    else:
        may_read = key < query if causal else key != query
        if not memories:
            alone = may_read.any(dim=-1, keepdim=True).logical_not()
            may_read = may_read.logical_or(alone.logical_and(key == query))
    may_read = F.pad(may_read, (memories, 0), value=True) if memories else may_read
    return may_read if scores is None else scores.masked_fill(may_read.logical_not(), float("-inf"))


class ClusterCore(Core):
    """Attention inside clusters: (B, H, C, W, K) -> (B, H, C, W, K)."""

    def __init__(self, width: int, *, fused: bool, mask: nn.Module | None) -> None:
        super().__init__(width, fused=fused, mask=mask)

    def forward(  # type: ignore[override]
        self, q: Tensor, k: Tensor, v: Tensor, at_q: Tensor, at_k: Tensor
    ) -> Tensor:
        if self.fused:
            may_read = None if self.mask is None else self.mask(None, at_q, at_k).flatten(1, 2)
            y = self.attention(q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2), may_read)
            return y.unflatten(1, q.shape[1:3])
        scores = self.scores(self.scaled(q), k)
        if self.mask is not None:
            scores = self.mask(scores, at_q, at_k)
        return self.weighted_sum(self.softmax(scores), v)


def averaged(y_BHCWK: Tensor, chosen_BHCW: Tensor, *, tokens: int) -> Tensor:
    """Each token's mean over the clusters that it is in, zero if in none: -> (B, H, N, K)."""
    y_BHPK, index_BHP = y_BHCWK.flatten(2, 3), chosen_BHCW.flatten(2)
    batch, heads, _, width = y_BHPK.shape
    sum_BHNK = y_BHPK.new_zeros(batch, heads, tokens, width)
    sum_BHNK = sum_BHNK.scatter_add(2, index_BHP.unsqueeze(-1).expand_as(y_BHPK), y_BHPK)
    places_BHN = y_BHPK.new_zeros(batch, heads, tokens)
    places_BHN = places_BHN.scatter_add(2, index_BHP, torch.ones_like(y_BHPK[..., 0]))
    return sum_BHNK / places_BHN.clamp(min=1).unsqueeze(-1)


class Local(nn.Module):
    """Attention of each block to itself and its neighbours: (B, N, 3·H·K) -> (B, H, N, K)."""

    def __init__(self, config: Routing, place: Place, width: int) -> None:
        super().__init__()
        self.heads, self.tokens, block = config.local_heads, place.grid.total, config.block()
        more, after = -self.tokens % block, 0 if config.causal else 1
        self.cut = Leaf(blocks_of, block=block, before=0, more=more, after=0)
        self.look = Leaf(blocks_of, block=block, before=1, more=more, after=after)
        mask = local_mask(self.tokens, block, after, causal=bool(config.causal))
        self.core = Core(width, fused=place.fused, mask=mask)

    def forward(self, qkv_BNI: Tensor) -> Tensor:
        q_BHNK, k_BHNK, v_BHNK = (split_heads(part, self.heads) for part in qkv_BNI.chunk(3, dim=-1))
        y_BGHTK = self.core(self.cut(q_BHNK), self.look(k_BHNK), self.look(v_BHNK))
        return y_BGHTK.transpose(1, 2).flatten(2, 3).narrow(2, 0, self.tokens)


def blocks_of(x_BHNK: Tensor, *, block: int, before: int, more: int, after: int) -> Tensor:
    """Blocks with `before` and `after` neighbours, a view of padded tokens: (B, H, N, K) -> (B, G, H, R, K).

    `more` padding tokens fill the last block.
    """
    pad = [0, 0, before * block, more + after * block]
    padded_BHNK = F.pad(x_BHNK, pad) if any(pad) else x_BHNK
    return padded_BHNK.unfold(2, (before + 1 + after) * block, block).permute(0, 2, 1, 4, 3)


def local_mask(tokens: int, block: int, after: int, *, causal: bool) -> FixedMask:
    """Shuts padding and, if causal, later tokens: on (B, G, H, T, R)."""
    blocks = -(-tokens // block)
    query_GT1 = torch.arange(blocks * block).unflatten(0, (blocks, block)).unsqueeze(-1)
    key_G1R = torch.arange(-block, (blocks + after) * block).unfold(0, (2 + after) * block, block).unsqueeze(1)
    shut_GTR = (key_G1R < 0).logical_or(key_G1R >= tokens)
    shut_GTR = shut_GTR.logical_or(key_G1R > query_GT1) if causal else shut_GTR.expand(-1, block, -1)
    return FixedMask(shut_GTR.unsqueeze(1))
