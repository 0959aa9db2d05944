"""Blockwise local attention: one pattern by hand, what it refuses, how far it reaches, and other people's code."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from whole_probe import probe
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.blockwise import Blockwise
from xfcost.torch_models.modules import MODULES


def stand(grid: Grid, dim: int = 6, *, fused: bool = False) -> Place:
    return Place(grid=grid, dim=dim, out_dim=dim, fused=fused)


def listed(component: Blockwise, grid: Grid) -> list[list[int]]:
    return [sorted(component.reads(grid, token)) for token in range(grid.total)]


def figure(component: Blockwise, grid: Grid, quantity: str, *rows: str, dim: int = 6) -> int:
    return sum(getattr(row, quantity) for row in component.operations(stand(grid, dim)) if row.path in rows)


# Patterns ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_image_transformer_2d_by_hand() -> None:
    # 4×6 in blocks of 2×3, one row above, one column beside. Tokens are numbered in rows of 6:
    #    0  1  2 |  3  4  5
    #    6  7  8 |  9 10 11
    #   ─────────┼─────────
    #   12 13 14 | 15 16 17
    #   18 19 20 | 21 22 23
    component = Blockwise(heads=1, block=[2, 3], above=1, beside=1, causal=True)
    grid = Grid((4, 6))
    reads = listed(component, grid)
    assert reads[6] == [0, 1, 2, 6]  # nothing of the block to the right, though 3 is numbered lower
    assert reads[3] == [2, 3, 8]  # the column to the left is generated already: 8 is numbered higher
    assert reads[12] == [6, 7, 8, 9, 12]  # the row above, one column further to the right
    assert reads[22] == sorted([8, 9, 10, 11, 14, 20, 15, 16, 17, 21, 22])
    # Inside 4 blocks 6·7/2 = 21 each; the right-hand blocks read 2 on their left, 12 tokens in all; the lower ones
    # 4 above each, 12 tokens in all: 84 + 24 + 48.
    assert sum(map(len, reads)) == component.pairs(grid) == 84 + 24 + 48
    # A memory block is an area, (2 + 1)·(3 + 2·1) = 15 positions, and not the survey's sum of lengths, 6 + 2·(1 + 1).
    assert next(row for row in component.operations(stand(grid)) if row.path == "scores").reads_tokens == 15
    assert figure(component, grid, "attention_entries", "scores") == 4 * 6 * 15
    turns = [component.blocks(grid).generation_order(token) for token in range(24)]
    assert turns[:6] == [0, 1, 2, 6, 7, 8]
    assert turns[6:12] == [3, 4, 5, 9, 10, 11]


def test_padding_is_counted_and_told() -> None:
    # 5×5 in blocks of 2×2: 9 blocks, 36 positions; keys and values stand in 6 + 1 rows and 6 + 2 columns.
    component, grid = Blockwise(heads=2, block=[2, 2], above=1, beside=1), Grid((5, 5))
    assert figure(component, grid, "moved", "query_blocks") == 36 * 6
    assert figure(component, grid, "moved", "memory_blocks") == 7 * 8 * 2 * 6
    assert figure(component, grid, "macs", "scores") == 9 * 4 * 12 * 6
    assert figure(component, grid, "macs", "qkv") == 25 * 6 * 18  # padded after the projection
    assert list(component.notes(stand(grid))) == [
        "grid 5×5 padded to whole blocks of 2×2: 11 positions more are attended over, and counted"
    ]
    whole = Blockwise(heads=2, block=5)
    assert figure(whole, Grid((10,)), "moved", "query_blocks", "memory_blocks") == 0
    (told,) = whole.notes(stand(Grid((10,))))
    assert "never learn of each other" in told
    notes = list(Blockwise(heads=2, block=8, before=8).notes(stand(Grid((5,)))))
    assert [note.split(":")[0] for note in notes] == [
        "5 tokens padded to whole blocks of 8",
        "one block holds all tokens",
    ]


@pytest.mark.parametrize(
    ("component", "grid", "field", "words"),
    [
        (Blockwise(heads=1, block=2, above=1), Grid((4, 4)), "above", "set by `before` and `after`"),
        (Blockwise(heads=1, block=[2, 2], after=1), Grid((4, 4)), "after", "set by `above`, `below` and `beside`"),
        (Blockwise(heads=1, block=[2, 2]), Grid((16,)), "block", "the tokens are 16; give"),
        (Blockwise(heads=1, block=[2, 2]), Grid((4, 4), 1), "block", r"16 \(4×4\) \+ 1"),
        (Blockwise(heads=1, block=2, after=1, causal=True), Grid((4,)), "after", "never read"),
        (Blockwise(heads=1, block=[2, 2], below=1, causal=True), Grid((4, 4)), "below", "never read"),
        (Blockwise(heads=4, block=2), Grid((4,)), "heads", "4 does not divide the width 6"),
    ],
    ids=str,
)
def test_what_can_not_be_is_refused(component: Blockwise, grid: Grid, field: str, words: str) -> None:
    with pytest.raises(ComponentError, match=words) as refused:
        component.check(stand(grid))
    assert refused.value.field == field


# Reach ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Stack(nn.Module):
    """`depth` layers of one component, each with its shortcut."""

    def __init__(self, component: Blockwise, grid: Grid, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MODULES[Blockwise](component, stand(grid)) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def reached(component: Blockwise, grid: Grid, depth: int) -> tuple[frozenset[int], ...]:
    return probe(Stack(component, grid, depth), (torch.zeros(1, grid.total, 6),)).reads


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_blocks_without_a_memory_never_mix_at_any_depth(depth: int) -> None:
    seen = reached(Blockwise(heads=2, block=4), Grid((18,)), depth)
    assert seen == tuple(frozenset(range(token // 4 * 4, min(18, token // 4 * 4 + 4))) for token in range(18))
    on_a_grid = reached(Blockwise(heads=2, block=[2, 2]), Grid((4, 4)), depth)
    assert on_a_grid[5] == {0, 1, 4, 5}
    assert on_a_grid[10] == {10, 11, 14, 15}


def test_with_a_memory_the_reach_grows_by_a_block_per_layer() -> None:
    component = Blockwise(heads=2, block=4, before=4, causal=True)
    assert [min(reached(component, Grid((16,)), depth)[15]) for depth in (1, 2, 3)] == [8, 4, 0]


def test_on_meta_the_positions_are_shapes_alone() -> None:
    # 2⁴⁰ tokens: their positions alone would be 8 TB.
    spot = Place(grid=Grid((2**40,)), dim=6, out_dim=6)
    with torch.device("meta"):
        module = MODULES[Blockwise](Blockwise(heads=2, block=64, before=64, causal=True), spot)
    assert all(buffer.is_meta for buffer in module.buffers())
    assert module(torch.empty(1, 2**40, 6, device="meta")).shape == (1, 2**40, 6)
