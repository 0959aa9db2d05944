"""Windows that are gathered, and not masked out of all pairs: blocks, bands, neighbourhoods.

B batch, N tokens or positions, D width, H heads, K head width. Blocks: G blocks of T queries and M memory positions.
Bands: R rows (residue classes of a dilated window) side by side, T queries and L keys of a row, C = T/S blocks of S
tokens, G global keys. Neighbourhoods: P centres of windows, G groups (heads), C channels of a group, W positions of a
window, Y and X the grid's sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.banded_attention import Blocks
from xfcost.formulas.component import Grid
from xfcost.mechanisms import blockwise
from xfcost.mechanisms.blockwise import BlockSparse
from xfcost.mechanisms.local_attention import Neighbourhood
from xfcost.mechanisms.sparse import Sparse
from xfcost.mechanisms.window import in_windows

NOWHERE = -1  # the position of padding keys


def cut_memory(x_BHWD: Any, size: Sequence[int], step: Sequence[int]) -> Tensor:
    """Rectangles of `size` at each `step`: (B, H, W, D) -> (B, G, M, D), a view for a single row."""
    cut: Any = blockwise.cut_memory(x_BHWD, size, step)
    return cut


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

    def forward(self, scores: Tensor | None = None) -> Tensor:
        keys_G1M = self.keys_GM.unsqueeze(1)
        outside_GTM = (keys_G1M < self.first_GT.unsqueeze(2)).logical_or(keys_G1M > self.last_GT.unsqueeze(2))
        if self.holed:
            after_GTM = keys_G1M >= self.hole_first_GT.unsqueeze(2)
            outside_GTM = outside_GTM.logical_or(after_GTM.logical_and(keys_G1M <= self.hole_last_GT.unsqueeze(2)))
        shut_G1TM = outside_GTM.unsqueeze(1)
        # in place: nothing else uses the scores, the largest tensor
        return shut_G1TM.logical_not() if scores is None else scores.masked_fill_(shut_G1TM, float("-inf"))


def block_mask(blocks: Blocks, *, causal: bool) -> IntervalMask:
    """Each query reads the tokens of its memory block; if causal, only those up to its own turn.

    A position is the token's turn. Padding queries read everything, so that their softmax is finite.
    """
    turns_HW = turns(blocks)
    latest = blocks.padded
    keys_HW = F.pad(turns_HW, blocks.padding(around=True)[2:], value=NOWHERE)
    queries_HW = F.pad(turns_HW, blocks.padding(around=False)[2:], value=NOWHERE)
    keys_GM = cut_memory(keys_HW[None, :, :, None], blocks.reach, blocks.block)[0, ..., 0]
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


def too_far(
    side: int, blocks: int, tokens: tuple[int, int], reach: tuple[int, int], classes: int
) -> Tensor:  # fmt: skip
    """Keys of a band beyond their query's reach: (S, 3S), on the CPU."""
    before, after = reach
    with torch.device("cpu"):
        ahead_SX = torch.arange(3 * side) - torch.arange(side)[:, None] - _back(reach) * side
        return (ahead_SX < -before) | (ahead_SX > after)


def absent(side: int, blocks: int, tokens: tuple[int, int], reach: tuple[int, int], classes: int) -> Tensor:
    """Keys of a band that are padding, or global tokens, which are read separately: (R, C, 3S), on the CPU."""
    first, end = tokens
    with torch.device("cpu"):
        start_C1 = (torch.arange(blocks)[:, None] - _back(reach)) * side
        token_RCX = (start_C1 + torch.arange(3 * side)) * classes + torch.arange(classes)[:, None, None]
        return (token_RCX < first) | (token_RCX >= end)


def _back(reach: tuple[int, int]) -> int:
    """Blocks of a band before the query's own."""
    return 2 if reach[1] == 0 else 1


def behind(tokens: int, padded: int) -> Tensor:
    """Which positions are padding behind the tokens: (P,), on the CPU."""
    with torch.device("cpu"):
        return torch.arange(padded) >= tokens


class Gather(nn.Module):
    """The vectors of each window: (B, N, D) -> (B, P, G, W, C), zeros off the grid and in `filled` more channels."""

    corner_P11: Tensor
    offset_W: Tensor
    group_G1: Tensor

    def __init__(self, windows: Neighbourhood, groups: int, *, filled: int = 0) -> None:
        super().__init__()
        self.sides, self.groups, rank = windows.grid.sides, groups, windows.rank
        self.pad = [0, filled] + [windows.reach] * (2 * rank)
        corners, offsets, bordered = torch.zeros([1] * rank).long(), torch.zeros([1] * rank).long(), 1
        for axis in reversed(range(rank)):  # numbers on the bordered grid, in raster order
            along = [-1 if other == axis else 1 for other in range(rank)]
            corners = corners + torch.arange(windows.out.sides[axis]).reshape(along) * windows.stride * bordered
            offsets = offsets + torch.arange(windows.size).reshape(along) * bordered
            bordered *= windows.grid.sides[axis] + 2 * windows.reach
        self.register_buffer("corner_P11", corners.reshape(-1, 1, 1), persistent=False)
        self.register_buffer("offset_W", offsets.flatten(), persistent=False)
        self.register_buffer("group_G1", torch.arange(groups).unsqueeze(-1), persistent=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        x = F.pad(x_BND.unflatten(1, self.sides), self.pad).flatten(1, -2).unflatten(-1, (self.groups, -1))
        return x[:, self.corner_P11 + self.offset_W, self.group_G1]


def offsets(windows: Neighbourhood) -> Tensor:
    """(1, W, R): the offsets of a window's places from its centre, along every axis."""
    along = torch.arange(windows.size, dtype=torch.get_default_dtype()) - windows.reach
    return torch.cartesian_prod(*[along] * windows.rank).reshape(1, -1, windows.rank)


def over_border(windows: Neighbourhood) -> Tensor:
    """(P, 1, W): the places of each window that lie outside the grid."""
    rank, over = windows.rank, torch.zeros([1] * (2 * windows.rank), dtype=torch.bool)
    for axis, (side, out) in enumerate(zip(windows.grid.sides, windows.out.sides, strict=True)):
        at_PW = torch.arange(out).unsqueeze(1) * windows.stride - windows.reach + torch.arange(windows.size)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = out, windows.size
        over = over | ((at_PW < 0) | (at_PW >= side)).reshape(shape)
    return over.flatten(rank).flatten(0, rank - 1).unsqueeze(1)


# The blocks that a block-sparse pattern reads ─────────────────────────────────────────────────────────────────────────


def blocks_read(config: BlockSparse, blocks: int, name: str) -> Tensor:
    """The blocks that all blocks of a kind read: `global` (1, U), `edge` (2, X), `middle` (U - 4, X)."""
    if name == "global":
        return torch.arange(blocks)[None]
    return keys_of_edge(config, blocks) if name == "edge" else keys_of_middle(config, blocks)


def padding_shut(config: BlockSparse, blocks: int, name: str, tokens: int) -> Tensor:
    """Which keys are padding: (G, 1, M)."""
    read_GX = blocks_read(config, blocks, name)
    token_GM = (read_GX[..., None] * config.block + torch.arange(config.block)).flatten(1)
    return (token_GM >= tokens)[:, None]


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


# Pairs inside a window ───────────────────────────────────────────────────────────────────────────────────────────────


def relative_index(window: tuple[int, ...]) -> Tensor:
    """The table row of each pair of tokens: (T, T), on the CPU."""
    with torch.device("cpu"):
        places_TR = torch.tensor(list(product(*(range(side) for side in window))))
        away_TTR = places_TR[:, None] - places_TR[None, :]
        index_TT = torch.zeros(away_TTR.shape[:2], dtype=torch.long)
        for axis, side in enumerate(window):
            index_TT = index_TT * (2 * side - 1) + away_TTR[..., axis] + side - 1
    return index_TT


def log_offsets(window: tuple[int, ...]) -> Tensor:
    """All offsets, log-spaced, in the order of the index: (R, r), on the CPU.

    ±(W-1) maps to ±log₂9/log₂8 for any W. Fine-tuned models keep the scale of their training window: other numbers, the
    same work. A side of one token has only the offset 0.
    """
    with torch.device("cpu"):
        along = [torch.arange(1 - side, side, dtype=torch.float64) * 8 / max(side - 1, 1) for side in window]
        offsets_Rr = torch.cartesian_prod(*along).reshape(-1, len(window))
        return offsets_Rr.sign() * (1 + offsets_Rr.abs()).log2() / 3


def shifted_apart(padded: tuple[int, ...], window: tuple[int, ...], shifts: tuple[int, ...]) -> Tensor:
    """True for tokens of a rolled window from different regions of the grid: (G, 1, T, T), on the CPU."""
    with torch.device("cpu"):
        region: Any = torch.zeros(1, *padded, 1, dtype=torch.long)
        for axis, (side, w, shift) in enumerate(zip(padded, window, shifts, strict=True)):
            along = torch.zeros(side, dtype=torch.long)
            if shift:
                along[side - w : side - shift] = 1
                along[side - shift :] = 2
            shape = [1] * (len(padded) + 2)
            shape[axis + 1] = side
            region = region * 3 + along.reshape(shape)
        counts = [side // w for side, w in zip(padded, window, strict=True)]
        cut = in_windows(region, counts, window)
        region_GT = cut[0, :, :, 0]
        return region_GT[:, None, :, None] != region_GT[:, None, None, :]


def distance_rows(queries: int, keys: int) -> Tensor:
    """The distance from key j to query i in steps of the finer grid, rounded down; the least is 0: (q, k)."""
    with torch.device("cpu"):
        at_q1, at_k = torch.arange(queries)[:, None], torch.arange(keys)
        return (at_q1 * keys + (keys - 1 - at_k) * queries).div(min(queries, keys), rounding_mode="floor")


# The keys of both factors of a factorised sparse pattern ─────────────────────────────────────────────────────────────


def local_mask(config: Sparse, grid: Grid) -> IntervalMask:
    """A⁽¹⁾ in blocks: the l positions before (and, if not causal, after) a query, or its own block."""
    blocks = config.blocks(grid)
    queries_P, keys_P = _positions(config, grid)
    queries_GT = queries_P.unflatten(0, (blocks.groups, config.stride))
    frame = blocks._replace(sides=(1, blocks.padded))
    keys_HW = F.pad(keys_P.unsqueeze(0), frame.padding(around=True)[2:], value=NOWHERE)
    keys_GM = cut_memory(keys_HW[None, :, :, None], blocks.reach, blocks.block)[0, ..., 0]
    first_GT, last_GT = _opened(*_near(config, queries_GT), queries_GT >= grid.total, blocks.padded)
    return IntervalMask(keys_GM, first_GT, last_GT)


def long_mask(config: Sparse, grid: Grid) -> IntervalMask:
    """A⁽²⁾ in its layout: all keys, or those up to the query if causal; merged, without those of A⁽¹⁾.

    In a factor of its own, a query without keys reads everything, and its output is zeroed afterwards.
    """
    layout, padded, merged = config.layout(grid), config.blocks(grid).padded, config.integration == "merged"

    def laid(x_P: Tensor, of: Any = layout.queries) -> Tensor:
        found: Tensor = of(x_P[None, :, None])[0, ..., 0]
        return found

    queries_P, keys_P = _positions(config, grid)
    queries_GT = laid(queries_P)
    last_GT = queries_GT if config.causal else torch.full_like(queries_GT, padded)
    free_P = queries_P >= grid.total if merged else (queries_P >= grid.total) | without_cells(config, grid)
    first_GT, last_GT = _opened(torch.zeros_like(queries_GT), last_GT, laid(free_P), padded)
    return IntervalMask(laid(keys_P, layout.keys), first_GT, last_GT, _near(config, queries_GT) if merged else None)


def without_cells(config: Sparse, grid: Grid) -> Tensor:
    """(P,): has a token no key in the long factor? True before the first summary cell."""
    queries_P, _ = _positions(config, grid)
    last_P = queries_P.clamp(max=grid.total - 1) if config.causal else torch.full_like(queries_P, grid.total - 1)
    return last_P < config.stride - (config.summary or config.stride)


def _positions(config: Sparse, grid: Grid) -> tuple[Tensor, Tensor]:
    """(P,) twice: the positions of queries and keys; padding keys have none."""
    queries_P = torch.arange(config.blocks(grid).padded)
    return queries_P, queries_P.where(queries_P < grid.total, NOWHERE)


def _near(config: Sparse, queries: Tensor) -> tuple[Tensor, Tensor]:
    """The first and last position of A⁽¹⁾."""
    start = queries // config.stride * config.stride
    first, last = start, start + config.stride - 1
    if config.pattern == "strided":
        first, last = (queries - config.stride).clamp(min=0), queries + config.stride
    return first, queries if config.causal else last


def _opened(first: Tensor, last: Tensor, free: Tensor, far: int) -> tuple[Tensor, Tensor]:
    """The interval, unlimited for `free` queries, so that their softmax is finite."""
    return first.masked_fill(free, NOWHERE), last.masked_fill(free, far)
