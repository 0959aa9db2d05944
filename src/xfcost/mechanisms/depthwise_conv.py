"""A depthwise convolution as a sub-layer: the position encoding generator of conditional positional encodings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from xfcost.formulas.component import Mixer, Place, Side
from xfcost.formulas.conv_kernel import Kernel, centred, check_centred
from xfcost.formulas.letters import Letter
from xfcost.formulas.rows import depthwise
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class DepthwiseConv(Mixer, frozen=True, kw_only=True, tag="depthwise_conv"):
    """Every channel's own W×W kernel around every token, zeros beyond the border: static local mixing.

    N tokens on a grid, width d.

        conv   N·W²·d MACs, W²·d + d parameters

    With `residual: {norm: none}` it is the position encoding generator PEG (Chu et al. 2023, CPVT, §3.2): x + conv(x)
    tells a token where it stands by the zeros beyond the border, at any resolution. Twins has one behind the first
    block of each stage (Chu et al. 2021, §3.1).
    """

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W, odd."""

    def check(self, place: Place) -> None:
        check_centred(place.grid, self.size)

    def label(self) -> str:
        return "Depthwise convolution"

    def kernel(self, grid: Grid) -> Kernel:
        """The window around every token."""
        return centred(grid, self.size)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.kernel(grid).reads(grid.sides, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.kernel(grid).pairs(grid.sides)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid = place.grid
        yield depthwise("conv", "Depthwise convolution", grid.tokens, self.kernel(grid).sides, place.dim)
