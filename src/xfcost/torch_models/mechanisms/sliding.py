"""Module of `mechanisms/sliding.py`: attention inside a sliding window, and global tokens.

B batch, N tokens, P tokens with padding, D width, H heads, K head width, G global tokens, R residue classes (the
dilation), T = P/R tokens of a class.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.sliding import Sliding
from xfcost.torch_models.shared.attention import Core, GroupedHeads
from xfcost.torch_models.shared.cache import KeyValueCache
from xfcost.torch_models.shared.leaves import FixedMask, Leaf, Linear, join_heads, split_heads, through, with_zeros
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
