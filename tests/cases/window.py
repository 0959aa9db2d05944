"""Window attention under the contract."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import GRIDS, HEADS, VOLUME, MechanismCase, masked_attention, readable
from xfcost.grid import Grid
from xfcost.mechanisms import Window
from xfcost.mechanisms.base import Place


def reference(page: Window, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """On the padded grid, as the public implementations run it: zeros are attended over like tokens, then cropped."""
    grid, padded = place.grid, page.padded(place.grid)
    stands = torch.tensor(kept(grid, padded))
    x_BPD = x_BND.new_zeros(x_BND.shape[0], padded.total, place.dim).index_copy(1, stands, x_BND)
    q, k, v = F.linear(x_BPD, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    bias = None if page.bias == "none" else window_bias(page, grid, padded, twin.relative_bias.weight)
    attended = masked_attention(q, k, v, page.heads, readable(page, padded), bias)
    return F.linear(attended, twin.out.weight, twin.out.bias)[:, stands]


def kept(grid: Grid, padded: Grid) -> list[int]:
    """Where the tokens of `grid` stand on `padded`."""
    places = itertools.product(*(range(side) for side in padded.sides))
    return [number for number, place in enumerate(places) if all(a < b for a, b in zip(place, grid.sides, strict=True))]


def window_bias(page: Window, grid: Grid, padded: Grid, table_RH: Tensor) -> Tensor:
    """(H, P, P): the table's row for how far two tokens of a window stand apart (Liu et al. 2021, equation 4)."""
    places = list(itertools.product(*(range(side) for side in padded.sides)))
    window = page.window(grid)
    index = torch.zeros(len(places), len(places), dtype=torch.long)
    for a, query in enumerate(places):
        for b in page.reads(padded, a):
            row = 0
            for here, there, side in zip(query, places[b], window, strict=True):
                row = row * (2 * side - 1) + here - there + side - 1
            index[a, b] = row
    return table_RH[index].permute(2, 0, 1)


@st.composite
def pages(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 9))
    return Window(
        heads=draw(HEADS),
        size=size,
        shift=draw(st.integers(0, size - 1)),
        bias=draw(st.sampled_from(["relative", "none"])),
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    page=Window,
    examples=(
        Window(heads=2, size=3),
        Window(heads=3, size=4, shift=1, bias="none"),
        Window(heads=2, size=7, shift=3),
        Window(heads=1, size=2, shift=1, projection_bias=False),
    ),
    pages=pages(),
    reference=reference,
    growth=lambda page: (Grid((2 * page.size, page.size)), Grid((4 * page.size, page.size))),
    grids=(*GRIDS, VOLUME),
    image=True,
)
