"""Pooling attention."""

from __future__ import annotations

from typing import Any

from order_examples.letters import W, both, dk, h, place, s, stride
from xfcost.grid import Grid
from xfcost.mechanisms import Pooling, WindowPooling
from xfcost.mechanisms.base import Page, Place

WIDE = {"dim": h * dk, "out_dim": h * dk}


def kernels(rank: int) -> dict[str, Any]:
    """Queries of stride 1; keys of stride l along a grid's last two axes, its frames being kept."""
    steps = [1] * (rank - 2) + [stride] * min(rank, 2)
    return {"heads": h, "q_size": [2 * W + 1] * rank, "kv_size": [2 * W + 1] * rank, "kv_stride": steps}


GRIDS = {1: Grid((s * s,)), 2: Grid((s, s)), 3: Grid((1, s, s))}

EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Pooling: [
        pair
        for rank, grid in GRIDS.items()
        for function in ("conv", "max", "mean")
        for pair in both(
            place(grid=grid, **WIDE),
            Pooling(**kernels(rank), function=function, bias="decomposed", residual_pooling="all"),
            Pooling(
                **kernels(rank) | {"q_stride": [1] * (rank - 2) + [2] * min(rank, 2)},
                function=function,
                bias="decomposed",
                residual_pooling="all",
                out_width=2 * h * dk,
            ),
        )
    ],
    WindowPooling: [
        pair
        for rank, grid in GRIDS.items()
        for function in ("conv", "max", "mean")
        for pair in both(
            place(grid=grid, **WIDE),
            WindowPooling(
                **kernels(rank), window=stride * W, function=function, bias="decomposed", residual_pooling="all"
            ),
        )
    ],
}
