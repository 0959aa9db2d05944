"""Module of `mechanisms/blockwise.py`: attention of query blocks to memory blocks, or to blocks that a pattern lists.

B batch, N tokens, U blocks of T tokens, G blocks of queries side by side, X blocks of keys that each of them reads, M
= X·T keys or memory positions, D width, I = H·K width of all heads, H heads, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.blockwise import BlockSparse, Blockwise
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import FixedMask, Leaf, Linear, join_heads, split_groups, split_heads, with_zeros
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


class BlockSparseAttention(nn.Module):
    """(B, N, D) -> (B, N, D). It is full attention on sequences of few blocks."""

    def __init__(self, config: BlockSparse, place: Place) -> None:
        super().__init__()
        self.inner = (
            ProgramModule(config.as_full(), place) if config.is_full(place.grid) else SparseBlocks(config, place)
        )

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.inner(x_BND)


class SparseBlocks(nn.Module):
    """Attention over six or more blocks: (B, N, D) -> (B, N, D)."""

    edge_GX: Tensor
    middle_GX: Tensor

    def __init__(self, config: BlockSparse, place: Place) -> None:
        super().__init__()
        inner, blocks = config.inner(place.dim), config.blocks(place.grid)
        self.heads, self.block, self.tokens, self.last = config.heads, config.block, place.grid.total, blocks - 1
        more = blocks * config.block - self.tokens
        self.pad = Leaf(with_zeros, after=more)
        self.qkv = Linear(place.dim, 3 * inner, bias=config.projection_bias)
        self.gather = Leaf(gathered)
        read = {"global": torch.arange(blocks)[None], "edge": keys_of_edge(config, blocks)}
        read["core"] = keys_of_middle(config, blocks)
        self.register_buffer("edge_GX", read["edge"], persistent=False)
        self.register_buffer("middle_GX", read["core"], persistent=False)
        masks = {name: padding_mask(read_GX, config.block, self.tokens) for name, read_GX in read.items()}
        self.core = nn.ModuleDict(
            {
                name: Core(inner // config.heads, fused=place.fused, mask=mask if more else None)
                for name, mask in masks.items()
            }
        )
        self.join = Leaf(in_sequence)
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        qkv = self.qkv(self.pad(x_BND)).chunk(3, dim=-1)
        # heads before blocks, so that gathered blocks are contiguous for the products
        q, k, v = (split_heads(part_BPD, self.heads).unflatten(2, (-1, self.block)) for part_BPD in qkv)
        last = self.last
        all_kv = (part_BHUTK.flatten(2, 3)[:, :, None] for part_BHUTK in (k, v))
        global_BHUTK = self.core["global"](q[:, :, ::last].flatten(2, 3)[:, :, None], *all_kv)
        edge_kv = (self.gather(part_BHUTK, self.edge_GX) for part_BHUTK in (k, v))
        edge_BHUTK = self.core["edge"](q[:, :, 1 : last : last - 2], *edge_kv)
        middle_kv = (self.gather(part_BHUTK, self.middle_GX) for part_BHUTK in (k, v))
        middle_BHUTK = self.core["core"](q[:, :, 2 : last - 1], *middle_kv)
        y_BHUTK = self.join(global_BHUTK.unflatten(3, (2, -1))[:, :, 0], edge_BHUTK, middle_BHUTK)
        return self.out(join_heads(y_BHUTK.flatten(2, 3)))[:, : self.tokens]


def keys_of_edge(config: BlockSparse, blocks: int) -> Tensor:
    """The blocks that the second block and the second-to-last block read: (2, X), sorted except the random ones."""
    last = blocks - 1
    fixed_GX = torch.tensor([[0, 1, 2, last], [0, last - 2, last - 1, last]])
    return torch.cat([fixed_GX, drawn(config, blocks)[[0, -1]]], dim=1)


def keys_of_middle(config: BlockSparse, blocks: int) -> Tensor:
    """The blocks that blocks 2 to U - 3 read: (U - 4, X), sorted except the random ones."""
    own_G1 = torch.arange(2, blocks - 2)[:, None]
    first_G1, last_G1 = torch.zeros_like(own_G1), torch.full_like(own_G1, blocks - 1)
    return torch.cat([first_G1, own_G1 - 1, own_G1, own_G1 + 1, last_G1, drawn(config, blocks)[1:-1]], dim=1)


def drawn(config: BlockSparse, blocks: int) -> Tensor:
    """The random blocks of each block that is not global: (U - 2, r); on `meta`, an empty tensor of that shape."""
    if torch.empty(0).is_meta:
        return torch.empty(blocks - 2, config.random_blocks, dtype=torch.long)
    rows = [config.drawn(blocks, block) for block in range(1, blocks - 1)]
    return torch.tensor(rows, dtype=torch.long).reshape(blocks - 2, config.random_blocks)


def gathered(blocks_BHUTK: Tensor, read_GX: Tensor) -> Tensor:
    """The blocks that each query block reads, concatenated: (B, H, U, T, K), (G, X) -> (B, H, G, X·T, K)."""
    return blocks_BHUTK.index_select(2, read_GX.flatten()).unflatten(2, read_GX.shape).flatten(3, 4)


def padding_mask(read_GX: Tensor, block: int, tokens: int) -> FixedMask:
    """Shuts padding keys: on (…, H, G, n, M)."""
    token_GM = (read_GX[..., None] * block + torch.arange(block)).flatten(1)
    return FixedMask((token_GM >= tokens)[:, None])


def in_sequence(global_BHUTK: Tensor, edge_BHUTK: Tensor, middle_BHUTK: Tensor) -> Tensor:
    """Blocks in sequence order: global and edge ones (B, H, 2, T, K), U - 4 middle ones -> (B, H, U, T, K)."""
    ends = [global_BHUTK[:, :, :1], edge_BHUTK[:, :, :1]], [edge_BHUTK[:, :, 1:], global_BHUTK[:, :, 1:]]
    return torch.cat([*ends[0], middle_BHUTK, *ends[1]], dim=2)
