"""Module of `mechanisms/pooling.py`: attention with pooled queries, keys and values.

B batch, N tokens, P queries, M keys, D width, H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import Kernel
from xfcost.mechanisms.pooling import Pooling
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.convolution import Convolution, in_rows, on_grid
from xfcost.torch_models.shared.convolution import Pooling as PoolOfGrid
from xfcost.torch_models.shared.decomposed import DecomposedPositions
from xfcost.torch_models.shared.leaves import Add, Linear, join_heads, split_heads
from xfcost.torch_models.shared.norms import norm


class PoolingAttention(nn.Module):
    """(B, N, D) -> (B, P, D')."""

    def __init__(self, config: Pooling, place: Place) -> None:
        super().__init__()
        self.config, self.place = config, place
        grid, width = place.grid, config.width(place)
        inner = config.inner(width)
        head_dim = inner // config.heads
        self.heads = config.heads
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        for name, kernel in (
            ("q", config.kernel(grid, "q")),
            ("k", config.kernel(grid, "kv")),
            ("v", config.kernel(grid, "kv")),
        ):
            self.add_module(f"pool_{name}", head_pool(config, kernel, place, head_dim))
            normed = kernel is not None and config.function == "conv"
            self.add_module(f"norm_{name}", norm("layer_norm", head_dim) if normed else None)
        queries, keys, _ = config.windows(grid)
        biased = config.bias == "decomposed"
        positions = DecomposedPositions(queries.sides, keys.sides, head_dim, grid.special) if biased else None
        self.core = CoreWithPositions(positions, Core(head_dim, fused=place.fused, biased=biased))
        self.add_queries = (
            AddQueries(grid.special if config.residual_pooling == "grid" else 0) if adds(config) else None
        )
        self.out = Linear(inner, width, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        parts = zip("qkv", self.qkv(x_BND).chunk(3, dim=-1), strict=True)
        q_BHPK, k_BHMK, v_BHMK = (self._pooled(name, split_heads(part, self.heads)) for name, part in parts)
        y_BHPK = self.attend(q_BHPK, k_BHMK, v_BHMK)
        if self.add_queries is not None:
            y_BHPK = self.add_queries(y_BHPK, q_BHPK)
        return self.out(join_heads(y_BHPK))

    def attend(self, q_BHPK: Tensor, k_BHMK: Tensor, v_BHMK: Tensor) -> Tensor:
        """Attention of each query to each key: (B, H, P, K)."""
        return self.core(q_BHPK, k_BHMK, v_BHMK)

    def _pooled(self, name: str, x_BHNK: Tensor) -> Tensor:
        pool, normed = getattr(self, f"pool_{name}"), getattr(self, f"norm_{name}")
        x_BHNK = x_BHNK if pool is None else pool(x_BHNK)
        return x_BHNK if normed is None else normed(x_BHNK)

    def residual_projection(self) -> nn.Module | None:
        """The projection of the residual stream to the new width."""
        width = self.config.width(self.place)
        return Linear(self.place.dim, width) if width != self.place.dim else None

    def residual_pool(self) -> nn.Module | None:
        """The max pooling of the residual stream."""
        kernel = self.config.skip(self.place.grid)
        return None if kernel is None else ResidualPool("max", kernel, self.place)


def adds(config: Pooling) -> bool:
    """Does the module add the queries to the attention output?"""
    return config.residual_pooling != "none"


class CoreWithPositions(nn.Module):
    """`Core` with a position bias computed from the queries."""

    def __init__(self, inner: DecomposedPositions | None, core: Core) -> None:
        super().__init__()
        self.inner, self.core = inner, core

    def forward(self, q_BHPK: Tensor, k_BHMK: Tensor, v_BHMK: Tensor) -> Tensor:
        return self.core(q_BHPK, k_BHMK, v_BHMK, None if self.inner is None else self.inner(q_BHPK))


def head_pool(config: Pooling, kernel: Kernel | None, place: Place, head_dim: int) -> nn.Module | None:
    """The pooling of each head, or None."""
    if kernel is None:
        return None
    if config.function == "conv":
        return HeadConvolution(head_dim, kernel, place)
    return HeadPool(config.function, kernel, place)


def over_grid(x_BHNK: Tensor, place: Place, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """Applies `pool` to each head's grid; special tokens pass unchanged: (B, H, e+N, K) -> (B, H, e+P, K)."""
    heads, special = x_BHNK.shape[1], place.grid.special
    grid_BNK = x_BHNK[:, :, special:].flatten(0, 1)
    pooled_BHPK = in_rows(pool(on_grid(grid_BNK, place.grid.sides))).unflatten(0, (-1, heads))
    return torch.cat([x_BHNK[:, :, :special], pooled_BHPK], dim=2) if special else pooled_BHPK


class HeadConvolution(Convolution):
    """A depthwise convolution shared by all heads: (B, H, N, K) -> (B, H, P, K)."""

    def __init__(self, head_dim: int, kernel: Kernel, place: Place) -> None:
        super().__init__(head_dim, head_dim, kernel, groups=head_dim, bias=False)
        self.place = place

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return over_grid(x_BHNK, self.place, super().forward)


class HeadPool(PoolOfGrid):
    """Max or mean pooling of each head: (B, H, N, K) -> (B, H, P, K)."""

    def __init__(self, form: str, kernel: Kernel, place: Place) -> None:
        super().__init__(form, kernel)
        self.place = place

    def forward(self, x_BHNK: Tensor) -> Tensor:
        return over_grid(x_BHNK, self.place, super().forward)


class ResidualPool(HeadPool):
    """Max pooling of the residual stream: (B, N, D) -> (B, P, D)."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(x_BND.unsqueeze(1)).squeeze(1)


class AddQueries(Add):
    """y + q, except for the first `apart` tokens: (B, H, P, K)."""

    def __init__(self, apart: int) -> None:
        super().__init__()
        self.apart = apart

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.apart:
            return super().forward(x, y)
        summed = super().forward(x[:, :, self.apart :], y[:, :, self.apart :])
        return torch.cat([x[:, :, : self.apart], summed], dim=2)
