"""Module of `mechanisms/blockwise.py`: attention of query blocks to overlapping memory blocks.

B batch, N tokens, G blocks of T queries and M memory positions, D width, I = H·K width of all heads, H heads, K head
width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.blockwise import Blockwise
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import Leaf, Linear, split_groups
from xfcost.torch_models.shared.windows import block_mask, cut_blocks, merged_blocks


class BlockwiseAttention(nn.Module):
    """(B, N, D) -> (B, N, D), tokens in raster order."""

    def __init__(self, config: Blockwise, place: Place) -> None:
        super().__init__()
        self.inner, self.heads = config.inner(place.dim), config.heads
        blocks = config.blocks(place.grid)
        self.qkv = Linear(place.dim, 3 * self.inner, bias=config.projection_bias)
        self.query_blocks = Leaf(cut_blocks, blocks=blocks, around=False)
        self.memory_blocks = Leaf(cut_blocks, blocks=blocks, around=True)
        self.core = Core(
            self.inner // config.heads, fused=place.fused, mask=block_mask(blocks, causal=bool(config.causal))
        )
        self.merge = Leaf(merged_blocks, blocks=blocks)
        self.out = Linear(self.inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BNI, kv_BN2I = self.qkv(x_BND).split([self.inner, 2 * self.inner], dim=-1)
        q_BGHTK = split_groups(self.query_blocks(q_BNI), self.heads)
        k_BGMI, v_BGMI = self.memory_blocks(kv_BN2I).chunk(2, dim=-1)
        k_BGHMK, v_BGHMK = split_groups(k_BGMI, self.heads), split_groups(v_BGMI, self.heads)
        y_BGTI = self.core(q_BGHTK, k_BGHMK, v_BGHMK).transpose(2, 3).flatten(3)
        return self.out(self.merge(y_BGTI))
