"""Module of `mechanisms/global_local.py`: full attention of global tokens, sliding attention of the long ones.

B batch, N tokens: G global ones, then L long ones; P queries of the long tokens with padding, D width, H heads, K head
width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.global_local import GlobalLocal
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import Leaf, Linear, join_heads, joined, split_heads, with_zeros
from xfcost.torch_models.shared.windows import BandCore, BandMask


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
        self.core = nn.ModuleDict({"inner": band(config, self.tokens, padded, self.special, inner // config.heads)})
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
        return self.concat(self.global_out(y_BGD), self.out(y_BLD))

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


def band(config: GlobalLocal, tokens: int, padded: int, special: int, head_dim: int) -> BandCore:
    """Query blocks of radius + 1 tokens; keys are padded by one block before and at most one after."""
    side = config.block
    mask = BandMask(side, padded // side, range(tokens), (config.radius, config.radius))
    return BandCore(head_dim, side, special, mask=mask, around=(side, padded - tokens + side))
