"""Twin of `mechanisms/block_sparse.py`.

B batch, N tokens, D width, H heads, K head width, U blocks of T tokens, G blocks of queries beside each other, X blocks
of keys that each of them reads, M = X·T keys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.live.leaves import NO_TABLES, Linear, Tables
from xfcost.live.mechanisms.band import Pad
from xfcost.live.mechanisms.core import Core
from xfcost.live.mechanisms.full import FullAttention
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.block_sparse import BlockSparse


class BlockSparseAttention(nn.Module):
    """(B, N, D) -> (B, N, D): full attention where there are too few blocks."""

    def __init__(self, page: BlockSparse, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        self.inner = FullAttention(page.as_full(), place) if page.is_full(place.grid) else Blocks(page, place)

    def forward(self, x_BND: Tensor) -> Tensor:
        y_BND: Tensor = self.inner(x_BND)
        return y_BND


class Blocks(nn.Module):
    """(B, N, D) -> (B, N, D), in six blocks at least."""

    edge_GX: Tensor
    middle_GX: Tensor

    def __init__(self, page: BlockSparse, place: Place) -> None:
        super().__init__()
        inner, blocks = page.inner(place.dim), page.blocks(place.grid)
        self.heads, self.block, self.tokens, self.last = page.heads, page.block, place.grid.total, blocks - 1
        self.pad = Pad(blocks * page.block - self.tokens)
        self.qkv = Linear(place.dim, 3 * inner, bias=page.projection_bias)
        self.gather = Gather()
        read = {"global": torch.arange(blocks)[None], "edge": keys_of_edge(page, blocks)}
        read["core"] = keys_of_middle(page, blocks)
        self.register_buffer("edge_GX", read["edge"], persistent=False)
        self.register_buffer("middle_GX", read["core"], persistent=False)
        masks = {name: PaddingMask(read_GX, page.block, self.tokens) for name, read_GX in read.items()}
        self.core = nn.ModuleDict(
            {
                name: Core(inner // page.heads, fused=place.fused, mask=mask if self.pad.more else None)
                for name, mask in masks.items()
            }
        )
        self.join = Join()
        self.out = Linear(inner, place.dim, bias=page.projection_bias)

    def forward(self, x_BND: Tensor) -> Tensor:
        qkv = self.qkv(self.pad(x_BND)).chunk(3, dim=-1)
        q, k, v = (part_BPD.unflatten(1, (-1, self.block)) for part_BPD in qkv)
        last = self.last
        all_keys = (part_BUTD.flatten(1, 2)[:, None] for part_BUTD in (k, v))
        of_global = self._attend("global", q[:, ::last].flatten(1, 2)[:, None], *all_keys)
        beside = (self.gather(part_BUTD, self.edge_GX) for part_BUTD in (k, v))
        of_edge = self._attend("edge", q[:, 1 : last : last - 2], *beside)
        around = (self.gather(part_BUTD, self.middle_GX) for part_BUTD in (k, v))
        of_middle = self._attend("core", q[:, 2 : last - 1], *around)
        y_BUTD = self.join(of_global.unflatten(2, (2, -1))[:, 0], of_edge, of_middle)
        return self.out(y_BUTD.flatten(1, 2))[:, : self.tokens]

    def _attend(self, name: str, q_BGTD: Tensor, k_BGMD: Tensor, v_BGMD: Tensor) -> Tensor:
        """G groups, each among its own keys: -> (B, G, T, D)."""
        heads = (part.unflatten(-1, (self.heads, -1)).transpose(2, 3) for part in (q_BGTD, k_BGMD, v_BGMD))
        y_BGHTK: Tensor = self.core[name](*heads)
        return y_BGHTK.transpose(2, 3).flatten(3)


def keys_of_edge(page: BlockSparse, blocks: int) -> Tensor:
    """The blocks that the second block reads, and the one before the last: (2, X), in order but for the drawn ones."""
    last = blocks - 1
    fixed_GX = torch.tensor([[0, 1, 2, last], [0, last - 2, last - 1, last]])
    return torch.cat([fixed_GX, drawn(page, blocks)[[0, -1]]], dim=1)


def keys_of_middle(page: BlockSparse, blocks: int) -> Tensor:
    """The blocks that every block between them reads: (U - 4, X), in order but for the drawn ones."""
    own_G1 = torch.arange(2, blocks - 2)[:, None]
    first_G1, last_G1 = torch.zeros_like(own_G1), torch.full_like(own_G1, blocks - 1)
    return torch.cat([first_G1, own_G1 - 1, own_G1, own_G1 + 1, last_G1, drawn(page, blocks)[1:-1]], dim=1)


def drawn(page: BlockSparse, blocks: int) -> Tensor:
    """The random blocks of every block that is not global: (U - 2, r); on `meta`, shapes alone."""
    if torch.empty(0).is_meta:
        return torch.empty(blocks - 2, page.random_blocks, dtype=torch.long)
    rows = [page.drawn(blocks, block) for block in range(1, blocks - 1)]
    return torch.tensor(rows, dtype=torch.long).reshape(blocks - 2, page.random_blocks)


class Gather(nn.Module):
    """Blocks side by side as they are read: (B, U, T, D), (G, X) -> (B, G, X·T, D)."""

    def forward(self, blocks_BUTD: Tensor, read_GX: Tensor) -> Tensor:
        return blocks_BUTD.index_select(1, read_GX.flatten()).unflatten(1, read_GX.shape).flatten(2, 3)


class PaddingMask(nn.Module):
    """-∞ where a key is padding: on (…, G, H, n, M). Without scores, the keys that may be read: (G, 1, 1, M)."""

    padding_GM: Tensor

    def __init__(self, read_GX: Tensor, block: int, tokens: int) -> None:
        super().__init__()
        token_GM = (read_GX[..., None] * block + torch.arange(block)).flatten(1)
        self.register_buffer("padding_GM", token_GM >= tokens, persistent=False)

    def forward(self, scores: Tensor | None) -> Tensor:
        padding_GHNM = self.padding_GM[:, None, None]
        return padding_GHNM.logical_not() if scores is None else scores.masked_fill(padding_GHNM, float("-inf"))


class Join(nn.Module):
    """Blocks in their order: (B, 2, T, D) of the global ones, as many beside them, (B, U-4, T, D) -> (B, U, T, D)."""

    def forward(self, of_global: Tensor, of_edge: Tensor, of_middle: Tensor) -> Tensor:
        return torch.cat([of_global[:, :1], of_edge[:, :1], of_middle, of_edge[:, 1:], of_global[:, 1:]], dim=1)
