"""Module of `mechanisms/sliding.py`: attention inside a sliding window, and global tokens.

B batch, N tokens: G global tokens, L long ones, P tokens with padding, D width, H heads, K head width, R residue
classes (the dilation), T = P/R tokens of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.sliding import GlobalLocal, Sliding
from xfcost.torch_models.shared.attention import Core, GroupedHeads
from xfcost.torch_models.shared.cache import KeyValueCache
from xfcost.torch_models.shared.leaves import (
    FixedMask,
    Leaf,
    Linear,
    join_heads,
    joined,
    split_heads,
    through,
    with_zeros,
)
from xfcost.torch_models.shared.windows import BandCore, BandMask, chunk_scores


class SlidingAttention(GroupedHeads):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a KV cache of its window."""

    def __init__(self, config: Sliding, place: Place, cache_batch: int | None = None) -> None:
        inner, bias, decodes = config.inner(place.dim), config.projection_bias, cache_batch is not None
        padded = place.grid.total if decodes else config.padded(place.grid)
        super().__init__(config, place.dim, padded, decodes=decodes)
        self.config, self.tokens = config, place.grid.total
        self.pad = None if decodes else Leaf(with_zeros, after=padded - self.tokens)
        if config.own_projections:  # of global tokens, which are never causal: unused with a cache
            self.global_q = Linear(place.dim, inner, bias=bias)
            self.global_kv = Linear(place.dim, 2 * inner, bias=bias)
        self.cache: KeyValueCache | None = None
        if cache_batch is not None:
            rows = min(config.window, -(-self.tokens // config.dilation))
            self.cache = KeyValueCache(cache_batch, self.heads[1], rows, self.cached_widths, classes=config.dilation)
        head_dim = inner // config.heads
        self.core: Any = Core(head_dim, fused=place.fused, shared=config.shared) if decodes else cores(config, place)
        self.overwrite = Leaf(overwritten) if config.global_tokens else None
        self.out = Linear(inner, place.dim, bias=bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BPD = through(x_BND, self.pad)
        q, k, v = self.projected(x_BPD)
        if self.cache is not None:
            return self.out(join_heads(self.core(q, *self.cache(k, v))))
        y_BPD = join_heads(self._local(q, k, v))
        if self.overwrite is not None:
            y_BPD = self.overwrite(join_heads(self._global(x_BPD, q, k, v)), y_BPD)
        return self.out(y_BPD)[:, : self.tokens]

    def _local(self, q_BHPK: Tensor, k_BHPK: Tensor, v_BHPK: Tensor) -> Tensor:
        """The band of each token, three half windows, and the global keys: -> (B, H, P, K)."""
        classes, g = self.config.dilation, self.config.global_tokens
        # token p = t·R + r is token t of class r
        parts = (part.unflatten(2, (-1, classes)).transpose(2, 3) for part in (q_BHPK, k_BHPK, v_BHPK))
        global_kv = (part[:, :, None, :g] for part in (k_BHPK, v_BHPK))  # (B, H, 1, G, K), none with fewer heads
        y_BHRTK: Tensor = self.core["inner"](*parts, *global_kv)
        return y_BHRTK.transpose(2, 3).flatten(2, 3)

    def _global(self, x_BPD: Tensor, q_BHPK: Tensor, k_BHPK: Tensor, v_BHPK: Tensor) -> Tensor:
        """The rows of the global tokens: -> (B, H, G, K)."""
        g, heads = self.config.global_tokens, self.config.heads
        q_BHGK = q_BHPK[:, :, :g]
        if self.config.own_projections:
            q_BHGK = split_heads(self.global_q(x_BPD[:, :g]), heads)
            k_BHPK, v_BHPK = (split_heads(part, heads) for part in self.global_kv(x_BPD).chunk(2, dim=-1))
        return self.core["global"](q_BHGK, k_BHPK, v_BHPK)


def cores(config: Sliding, place: Place) -> nn.ModuleDict:
    """The attention cores of all tokens' bands and of the global tokens' rows."""
    tokens, padded, head_dim = place.grid.total, config.padded(place.grid), config.inner(place.dim) // config.heads
    parts: dict[str, nn.Module] = {"inner": band(config, tokens, padded, head_dim)}
    if config.global_tokens:
        parts["global"] = Core(head_dim, fused=False, mask=FixedMask(torch.arange(padded) >= tokens))
    return nn.ModuleDict(parts)


def band(config: Sliding, tokens: int, padded: int, head_dim: int) -> BandCore:
    """Blocks of half a window. A causal query reads earlier blocks, another one block on each side, in chunks."""
    side, classes, causal = config.half, config.dilation, bool(config.causal)
    reach = (config.window - 1, 0) if causal else (side, side)
    blocks, among, shared = padded // classes // side, range(config.global_tokens, tokens), config.shared
    return BandCore(
        head_dim,
        side,
        config.global_tokens,
        mask=BandMask(side, blocks, among, reach, classes, shared=shared),
        around=(2 * side, 0) if causal else (side, side),
        scores=None if causal else Leaf(chunk_scores, side=side),
        shared=shared,
    )


def overwritten(rows_BGD: Tensor, y_BPD: Tensor) -> Tensor:
    """Replaces the first rows with those of the global tokens: (B, G, D), (B, P, D) -> (B, P, D)."""
    return torch.cat([rows_BGD, y_BPD[:, rows_BGD.shape[1] :]], dim=1)


class GlobalLocalAttention(nn.Module):
    """(B, N, D) -> (B, N, D)."""

    def __init__(self, config: GlobalLocal, place: Place) -> None:
        super().__init__()
        inner, bias, dim = config.inner(place.dim), config.projection_bias, place.dim
        self.heads, self.tokens, self.special = config.heads, place.grid.tokens, place.grid.special
        self.separate = bool(self.special) and not config.share_projections
        if self.separate:
            self.long_qkv = Linear(dim, 3 * inner, bias=bias)
            self.l2g_kv = Linear(dim, 2 * inner, bias=bias)
            self.global_qkv = Linear(dim, 3 * inner, bias=bias)
            self.g2l_kv = Linear(dim, 2 * inner, bias=bias)
            self.global_kv = Leaf(joined, dim=1)
        else:
            self.qkv = Linear(dim, 3 * inner, bias=bias)
        padded = config.padded(place.grid)
        self.pad = Leaf(with_zeros, after=padded - self.tokens)
        self.core = nn.ModuleDict(
            {"inner": special_band(config, self.tokens, padded, self.special, inner // config.heads)}
        )
        if self.special:
            self.core["global"] = Core(inner // config.heads, fused=False)
            self.concat = Leaf(joined, dim=1)
        self.out = Linear(inner, dim, bias=bias)
        self.global_out = Linear(inner, dim, bias=bias) if self.special and not config.share_output else None

    def forward(self, x_BND: Tensor) -> Tensor:
        long_qkv, global_kv, global_qkv = self._projected(x_BND)
        q, k, v = (part_BHLK[:, :, None] for part_BHLK in (self.pad(long_qkv[0]), *long_qkv[1:]))  # one row
        y_BHPK: Tensor = self.core["inner"](q, k, v, *(part_BHGK[:, :, None] for part_BHGK in global_kv))[:, :, 0]
        y_BLD = join_heads(y_BHPK[:, :, : self.tokens])
        if not self.special:
            return self.out(y_BLD)
        y_BGD = join_heads(self.core["global"](*global_qkv))
        if self.global_out is None:
            return self.out(self.concat(y_BGD, y_BLD))
        text_BLD = self.out(y_BLD)
        return self.concat(self.global_out(y_BGD), text_BLD)

    def _projected(self, x_BND: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """(B, H, …, K): q, k, v of long tokens; the global keys and values that they read; q, k, v of global tokens."""
        g = self.special
        if not self.separate:
            q, k, v = self._split(self.qkv(x_BND), 3)
            return [part[:, :, g:] for part in (q, k, v)], [k[:, :, :g], v[:, :, :g]], [q[:, :, :g], k, v]
        x_BGD, x_BLD = x_BND[:, :g], x_BND[:, g:]
        long_qkv, long_kv = self._split(self.long_qkv(x_BLD), 3), self._split(self.l2g_kv(x_BGD), 2)
        q, *own = self.global_qkv(x_BGD).chunk(3, dim=-1)
        read = [self.global_kv(*parts) for parts in zip(own, self.g2l_kv(x_BLD).chunk(2, dim=-1), strict=True)]
        global_qkv = [split_heads(part_BXD, self.heads) for part_BXD in (q, *read)]
        return long_qkv, long_kv, global_qkv

    def _split(self, x_BND: Tensor, parts: int) -> list[Tensor]:
        return [split_heads(part_BND, self.heads) for part_BND in x_BND.chunk(parts, dim=-1)]


def special_band(config: GlobalLocal, tokens: int, padded: int, special: int, head_dim: int) -> BandCore:
    """Query blocks of radius + 1 tokens; keys are padded by one block before and at most one after."""
    side = config.block
    mask = BandMask(side, padded // side, range(tokens), (config.radius, config.radius))
    return BandCore(head_dim, side, special, mask=mask, around=(side, padded - tokens + side))
