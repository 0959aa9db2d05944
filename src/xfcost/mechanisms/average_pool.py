"""PoolFormer's token mixer: the mean of a token's neighbours minus the token; no parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from xfcost.formulas.component import Grid, Letter, Number, Operation, Place
from xfcost.formulas.conv_kernel import CentredKernelMixer, check_mean_pool, pooling
from xfcost.formulas.rows import elementwise
from xfcost.ledger.tensors import BEFORE, INPUT


class AveragePool(CentredKernelMixer, frozen=True, kw_only=True, tag="average_pool"):
    """Average pooling of W×W neighbours, stride 1, less the token: pool(x) - x (Yu et al. 2022, §3.2, equation 4).

        pool      N·W²·d additions
        subtract  N·d, because the residual around it adds x again

    At a border the mean is over the neighbours that are there, and divides by their number alone (the public code's
    `count_include_pad=False`): 4 in a corner of a 3×3 pool, 6 at an edge, 9 inside. By the convention for pools a
    kernel's positions are counted, padding included. One token alone is its own mean, and gives 0.
    """

    short_name = "Average pooling"

    size: Annotated[int, msgspec.Meta(ge=3, le=2**16), Letter("W")] = 3
    """Side W of the pooling window, odd."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_mean_pool(self.kernel(place.grid), place.grid)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return [] if grid.tokens == 1 else super().reads(grid, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return 0 if grid.tokens == 1 else super().pairs(grid)

    def operations(self, place: Place) -> Iterator[Operation]:
        elements = place.grid.tokens * place.dim
        yield pooling("pool", "mean", self.kernel(place.grid), elements)
        yield elementwise("subtract", "Subtract the token", "add", elements, of=(BEFORE, INPUT))
