"""Module of `mechanisms/window_pooling.py`: pooling attention inside windows.

B batch, P queries, M keys, H heads, K head width, G windows of T tokens.
"""

from __future__ import annotations

from math import prod

from torch import Tensor

from xfcost.formulas.component import Place
from xfcost.mechanisms.window_pooling import WindowPooling
from xfcost.torch_models.mechanisms.pooling import PoolingAttention
from xfcost.torch_models.mechanisms.window import Merge, Partition


class WindowPoolingAttention(PoolingAttention):
    """(B, N, D) -> (B, P, D')."""

    def __init__(self, config: WindowPooling, place: Place) -> None:
        super().__init__(config, place)
        grid, still = place.grid, (0,) * len(place.grid.sides)
        mine, theirs, counts = config.windows(grid)
        self.windows = prod(counts)
        padded, padded_keys = config.padded(grid)
        queries = (config.queries(grid), padded, mine.sides, still)
        keys = (config.keys(grid), padded_keys, theirs.sides, still)
        self.partition_q, self.partition_k = HeadPartition(*queries), HeadPartition(*keys)
        self.partition_v = HeadPartition(*keys)
        self.merge = HeadMerge(*queries)

    def attend(self, q_BHPK: Tensor, k_BHMK: Tensor, v_BHMK: Tensor) -> Tensor:
        """Attention of queries to the keys of their window; windows join the batch axis."""
        parts = (self.partition_q(q_BHPK), self.partition_k(k_BHMK), self.partition_v(v_BHMK))
        y_BGHTK = self.core(*(part_BGHTK.flatten(0, 1) for part_BGHTK in parts)).unflatten(0, (-1, self.windows))
        return self.merge(y_BGHTK)


class HeadPartition(Partition):
    """(B, H, P, K) -> (B, G, H, T, K)."""

    def forward(self, x_BHPK: Tensor) -> Tensor:
        heads = x_BHPK.shape[1]
        return super().forward(x_BHPK.flatten(0, 1)).unflatten(0, (-1, heads)).transpose(1, 2)


class HeadMerge(Merge):
    """The inverse of `HeadPartition`: (B, G, H, T, K) -> (B, H, P, K)."""

    def forward(self, x_BGHTK: Tensor) -> Tensor:
        heads = x_BGHTK.shape[2]
        return super().forward(x_BGHTK.transpose(1, 2).flatten(0, 1)).unflatten(0, (-1, heads))
