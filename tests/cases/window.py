"""Window attention under the contract."""

from __future__ import annotations

import itertools
import math

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import GRIDS, HEADS, VOLUME, MechanismCase, Rows, masked_attention, readable
from xfcost.grid import Grid
from xfcost.mechanisms import Window
from xfcost.mechanisms.base import Place


def reference(page: Window, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """On the padded grid, as the public implementations run it: zeros are attended over like tokens, then cropped."""
    grid, padded = place.grid, page.padded(place.grid)
    stands = torch.tensor(kept(grid, padded))
    x_BPD = x_BND.new_zeros(x_BND.shape[0], padded.total, place.dim).index_copy(1, stands, x_BND)
    q, k, v = projected(page, twin, x_BPD)
    if page.score == "cosine":
        q, k = cosine_queries(page, twin, q), by_head(k, page.heads)
    bias = None
    if page.bias != "none":
        table = twin.relative_bias.weight if page.bias == "relative" else continuous_table(page.window(grid), twin.cpb)
        bias = window_bias(page, grid, padded, table)
    attended = masked_attention(q, k, v, page.heads, readable(page, padded), bias)
    return F.linear(attended, twin.out.weight, twin.out.bias)[:, stands]


def projected(page: Window, twin: nn.Module, x_BPD: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values: keys without a bias where the page says so."""
    if page.key_bias:
        return F.linear(x_BPD, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    q, v = F.linear(x_BPD, twin.qv.weight, twin.qv.bias).chunk(2, dim=-1)
    return q, x_BPD @ twin.k.weight.T, v


def by_head(x_BPD: Tensor, heads: int) -> Tensor:
    """Every head's vectors of length 1; a vector of zeros stays one."""
    return torch.cat([part / part.norm(dim=-1, keepdim=True).clamp_min(1e-12) for part in x_BPD.chunk(heads, -1)], -1)


def cosine_queries(page: Window, twin: nn.Module, q_BPD: Tensor) -> Tensor:
    """Queries whose product with keys of length 1, over √K, is cos(q, k)/τ (Liu et al. 2022, equation 2)."""
    width = q_BPD.shape[-1] // page.heads
    factors = twin.cosine.temperature.weight.flatten().exp().clamp_max(100)
    return by_head(q_BPD, page.heads) * factors.repeat_interleave(width) * width**0.5


def continuous_table(window: tuple[int, ...], network: nn.Module) -> Tensor:
    """(R, H): what the network says of every offset, one after the other (Liu et al. 2022, equations 3 and 4)."""
    rows = []
    for offset in itertools.product(*(range(1 - side, side) for side in window)):
        # from -8 to 8, whatever the window; then sign(x)·log₂(1 + |x|)/log₂8
        scaled = [8 * here / max(side - 1, 1) for here, side in zip(offset, window, strict=True)]
        spaced = [math.copysign(math.log2(1 + abs(x)) / math.log2(8), x) for x in scaled]
        # the twin holds them in single precision
        x_r = torch.tensor(spaced, dtype=torch.float32).double()
        hidden = (network.fc1.weight @ x_r + network.fc1.bias).clamp_min(0)
        rows.append(16 * torch.sigmoid(network.fc2.weight @ hidden))
    return torch.stack(rows)


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
    biased = draw(st.booleans())
    return Window(
        heads=draw(HEADS),
        size=size,
        shift=draw(st.integers(0, size - 1)),
        score=draw(st.sampled_from(["dot", "cosine"])),
        bias=draw(st.sampled_from(["relative", "log_cpb", "none"])),
        projection_bias=biased,
        key_bias=draw(st.booleans()) or not biased,
        output_bias=draw(st.none() | st.booleans()),
    )


CASE = MechanismCase(
    rows=Rows(
        positional=lambda page: frozenset(
            (
                "relative_bias",
                "cpb_lookup",
            )
        ),
        masks=frozenset(("mask",)),
    ),
    page=Window,
    examples=(
        Window(heads=2, size=3),
        Window(heads=3, size=4, shift=1, bias="none"),
        Window(heads=2, size=7, shift=3),
        Window(heads=1, size=2, shift=1, projection_bias=False),
        Window(heads=2, size=3, projection_bias=False, output_bias=True),
        Window(heads=3, size=4, shift=2, score="cosine", bias="log_cpb", key_bias=False),
        Window(heads=2, size=3, score="cosine", bias="none"),
    ),
    pages=pages(),
    reference=reference,
    growth=lambda page: (Grid((2 * page.size, page.size)), Grid((4 * page.size, page.size))),
    grids=(*GRIDS, VOLUME),
    image=True,
)
