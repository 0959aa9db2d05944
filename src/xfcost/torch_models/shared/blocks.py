"""Leaves that cut a frame of tokens into query and memory blocks, and mask intervals of positions.

B batch, N tokens, G blocks of T queries and M memory positions, D width, H heads, K head width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.query_blocks import Blocks

NOWHERE = -1  # the position of padding keys


class QueryBlocks(nn.Module):
    """Pads to full blocks and cuts: (B, N, D) -> (B, G, T, D)."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.sides, self.block = blocks.sides, blocks.block
        self.pad = padding(blocks, around=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BHWD = x_BND.unflatten(1, self.sides)
        if any(self.pad):
            x_BHWD = F.pad(x_BHWD, self.pad)
        return cut_memory(x_BHWD, self.block, self.block)


class MemoryBlocks(nn.Module):
    """Pads around and cuts overlapping memory blocks, a view of the padded frame: (B, N, D) -> (B, G, M, D)."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.sides, self.block = blocks.sides, blocks.block
        self.reach = reach(blocks)
        self.pad = padding(blocks, around=True)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BHWD = x_BND.unflatten(1, self.sides)
        if any(self.pad):
            x_BHWD = F.pad(x_BHWD, self.pad)
        return cut_memory(x_BHWD, self.reach, self.block)


class MergeBlocks(nn.Module):
    """The inverse of `QueryBlocks`, with padding cropped: (B, G, T, D) -> (B, N, D)."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self.sides, self.block, self.counts = blocks.sides, blocks.block, blocks.counts

    def forward(self, x_BGTD: Tensor) -> Tensor:
        x = x_BGTD.unflatten(2, self.block).unflatten(1, self.counts).transpose(2, 3)
        x_BHWD = x.flatten(3, 4).flatten(1, 2)
        return x_BHWD.narrow(1, 0, self.sides[0]).narrow(2, 0, self.sides[1]).flatten(1, 2)


class IntervalMask(nn.Module):
    """-∞ at keys outside their query's interval of positions: on (…, G, H, T, M).

    Without scores, a boolean mask. It stores positions and compares them in every call, so that no buffer has the size
    of the scores.
    """

    keys_GM: Tensor
    first_GT: Tensor
    last_GT: Tensor
    hole_first_GT: Tensor
    hole_last_GT: Tensor

    def __init__(
        self, keys_GM: Tensor, first_GT: Tensor, last_GT: Tensor, hole: tuple[Tensor, Tensor] | None = None
    ) -> None:
        """`hole`: the first and last position (G, T) of an inner interval that is also masked."""
        super().__init__()
        device = torch.empty(0).device
        buffers = {"keys_GM": keys_GM, "first_GT": first_GT, "last_GT": last_GT}
        self.holed = hole is not None
        if hole is not None:
            buffers |= {"hole_first_GT": hole[0], "hole_last_GT": hole[1]}
        for name, positions in buffers.items():
            self.register_buffer(name, positions.to(device), persistent=False)

    def forward(self, scores: Tensor | None) -> Tensor:
        keys_G1M = self.keys_GM.unsqueeze(1)
        outside_GTM = (keys_G1M < self.first_GT.unsqueeze(2)).logical_or(keys_G1M > self.last_GT.unsqueeze(2))
        if self.holed:
            after_GTM = keys_G1M >= self.hole_first_GT.unsqueeze(2)
            outside_GTM = outside_GTM.logical_or(after_GTM.logical_and(keys_G1M <= self.hole_last_GT.unsqueeze(2)))
        shut_G1TM = outside_GTM.unsqueeze(1)
        # in place: nothing else uses the scores, the largest tensor
        return shut_G1TM.logical_not() if scores is None else scores.masked_fill_(shut_G1TM, float("-inf"))


def reach(blocks: Blocks) -> tuple[int, int]:
    """Rows and columns of a memory block."""
    rows, columns = (sum(parts) for parts in zip(blocks.block, blocks.before, blocks.after, strict=True))
    return rows, columns


def padding(blocks: Blocks, *, around: bool) -> list[int]:
    """The arguments of `F.pad` on (B, H, W, D): up to full blocks, and `around` for the outermost memory blocks."""
    pad = [0, 0]
    for side, block, before, after, count in reversed(list(zip(*blocks, blocks.counts, strict=True))):
        more = count * block - side
        pad += [before, more + after] if around else [0, more]
    return pad


def cut_memory(x_BHWD: Tensor, size: Sequence[int], step: Sequence[int]) -> Tensor:
    """Rectangles of `size` at each `step`: (B, H, W, D) -> (B, G, M, D), a view for a single row."""
    x_BRCDhw = x_BHWD.unfold(1, size[0], step[0]).unfold(2, size[1], step[1])
    return x_BRCDhw.permute(0, 1, 2, 4, 5, 3).flatten(3, 4).flatten(1, 2)


def block_mask(blocks: Blocks, *, causal: bool) -> IntervalMask:
    """Each query reads the tokens of its memory block; if causal, only those up to its own turn.

    A position is the token's turn. Padding queries read everything, so that their softmax is finite.
    """
    turns_HW = turns(blocks)
    latest = blocks.padded
    keys_HW = F.pad(turns_HW, padding(blocks, around=True)[2:], value=NOWHERE)
    queries_HW = F.pad(turns_HW, padding(blocks, around=False)[2:], value=NOWHERE)
    keys_GM = cut_memory(keys_HW[None, :, :, None], reach(blocks), blocks.block)[0, ..., 0]
    queries_GT = cut_memory(queries_HW[None, :, :, None], blocks.block, blocks.block)[0, ..., 0]
    first_GT = queries_GT.clamp(max=0)
    last_GT = queries_GT.where(queries_GT > NOWHERE, latest) if causal else torch.full_like(queries_GT, latest)
    return IntervalMask(keys_GM, first_GT, last_GT)


def turns(blocks: Blocks) -> Tensor:
    """(H, W): the order of tokens: block by block, in raster order inside a block."""
    height, width = blocks.block
    rows_H1 = torch.arange(blocks.sides[0]).unsqueeze(1)
    columns_W = torch.arange(blocks.sides[1])
    number_HW = rows_H1 // height * blocks.counts[1] + columns_W // width
    return (number_HW * height + rows_H1 % height) * width + columns_W % width
