"""Stand-alone local self-attention under the contract."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import LocalAttention
from xfcost.mechanisms.base import Place

# Smaller than the windows, of one position, one row, odd sides through strides.
SMALL_GRIDS: tuple[Grid, ...] = (
    *(Grid(sides) for sides in [(1,), (5,), (1, 1), (2, 2), (1, 7), (3, 5), (4, 5), (2, 1, 3)]),
)


def reference(page: LocalAttention, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Ramachandran et al. 2019, equation 3, position by position and head by head; beyond the border stand zeros."""
    sides, reach = place.grid.sides, page.size // 2
    number = {at: token for token, at in enumerate(positions(sides))}
    q, k, v = F.linear(x_BND, twin.qkv.weight).chunk(3, dim=-1)
    outputs = []
    for at in number:
        heads = []
        for head, columns in enumerate(torch.arange(place.dim).chunk(page.heads)):
            scores, values = [], []
            for offset in itertools.product(range(page.size), repeat=len(sides)):
                there = tuple(here + step - reach for here, step in zip(at, offset, strict=True))
                known = there in number
                key = k[:, number[there]][:, columns] if known else torch.zeros_like(k[:, 0, columns])
                if page.position == "relative":
                    axes = enumerate(offset)
                    key = key + torch.cat([twin.positions.weight[axis, head, step] for axis, step in axes])
                scores.append((q[:, number[at]][:, columns] * key).sum(-1))
                values.append(v[:, number[there]][:, columns] if known else torch.zeros_like(v[:, 0, columns]))
            weights_BW1 = torch.stack(scores, dim=-1).softmax(-1).unsqueeze(-1)
            heads.append((weights_BW1 * torch.stack(values, dim=1)).sum(1))
        outputs.append(torch.cat(heads, dim=-1))
    return cell_means(torch.stack(outputs, dim=1), sides, page.stride)


def positions(sides: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Where tokens stand, in raster order."""
    return list(itertools.product(*(range(side) for side in sides)))


def cell_means(y_BND: Tensor, sides: tuple[int, ...], stride: int) -> Tensor:
    """The mean of each cell of `stride` positions along every axis, of what there is of it."""
    cells: dict[tuple[int, ...], list[Tensor]] = {}
    for token, at in enumerate(positions(sides)):
        cells.setdefault(tuple(place // stride for place in at), []).append(y_BND[:, token])
    return torch.stack([torch.stack(cells[cell]).mean(0) for cell in sorted(cells)], dim=1)


EXAMPLES = (
    LocalAttention(heads=2, size=3),
    LocalAttention(heads=3, size=5, position="none"),
    LocalAttention(heads=1, size=3, stride=2),
)

CASE = MechanismCase(
    rows=Rows(  # a table, and its sums with keys that are gathered already: nothing there numbers queries
        left_out=lambda page: frozenset(("positions", "add_positions")),
    ),
    page=LocalAttention,
    examples=EXAMPLES,
    pages=st.builds(
        LocalAttention,
        heads=st.sampled_from([1, 2]),
        size=st.sampled_from([3, 5, 7]),
        position=st.sampled_from(["relative", "none"]),
        stride=st.integers(1, 3),
    ),
    reference=reference,
    growth=lambda page: (Grid((10, 6)), Grid((20, 6))),
    grids=SMALL_GRIDS,
    image=True,
    dim=12,
)
