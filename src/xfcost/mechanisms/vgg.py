"""The convolutional stage of VGG: 3×3 convolutions, then a 2×2 max-pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Letter,
    Mixer,
    Number,
    Operation,
    Place,
    check_no_special_tokens,
)
from xfcost.formulas.conv_kernel import Kernel, kernel_of_three, pooling, unread_note
from xfcost.formulas.rows import convolution, elementwise, letter_power, norm, on_raw_input
from xfcost.ledger.grid import sides_text


class Vgg(Mixer, frozen=True, kw_only=True, tag="vgg"):
    """n 3×3 convolutions with ReLU, then the maximum of disjoint 2×2 (Simonyan and Zisserman 2015, §2.1 and Table 1).

    N tokens of width d on a grid become N/4 of the stage's width d'; a side that is odd loses its last position.

        conv1  9·N·d·d' MACs, 9·d·d' + d' parameters
        conv2  9·N·d'² MACs, 9·d'² + d' parameters, and so on to the n-th
        norm   N·d' elements behind each, if any
        act    N·d' elements behind each
        pool   N/4 maxima of 4, l = 2 along a side

    A token that leaves reads (2n + 2)×(2n + 2) tokens. On a sequence or a volume the kernels have 3 or 27 positions.
    """

    short_name = "VGG block"

    residual: Literal["none"] = "none"
    """Only `none`: there is no shortcut."""
    convs: Annotated[int, msgspec.Meta(ge=1, le=2**8), Letter(None)] = 2
    """Number n of convolutions."""
    norm: Literal["none", "batch_norm"] = "none"
    """Norm behind each convolution."""

    @property
    def widens(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "a kernel slides over a grid")
        if min(place.grid.sides) < 2:  # noqa: PLR2004 - the pool's side
            raise ComponentError(
                "kind", f"halves every side, and the grid is {sides_text(place.grid.sides)}; use a larger input"
            )

    def pool(self, grid: Grid) -> Kernel:
        """The kernel of the max-pool."""
        rank = len(grid.sides)
        return Kernel((2,) * rank, (2,) * rank, (0,) * rank)

    def kernel(self, grid: Grid) -> Kernel:
        """Convolutions and pool as one kernel: what a token that leaves reads."""
        rank, reach = len(grid.sides), self.convs
        return Kernel((2 * reach + 2,) * rank, (2,) * rank, (reach,) * rank)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(self.pool(place.grid).out(place.grid.sides)), place.out_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.kernel(grid).reads(grid.sides, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.kernel(grid).pairs(grid.sides)

    def operations(self, place: Place) -> Iterator[Operation]:
        (out_grid, width), tokens = self.out(place), place.grid.tokens
        kernel = kernel_of_three(place.grid).sides
        for number in range(1, self.convs + 1):
            inputs = place.dim if number == 1 else width
            sizes: dict[str, Any] = {"outputs": tokens, "kernel": kernel, "width": inputs, "out_width": width}
            conv = convolution(f"conv{number}", "3×3 convolution", **sizes)
            yield on_raw_input(conv) if number == 1 else conv
            yield from norm(self.norm, f"norm{number}", tokens, width)
            yield elementwise(f"act{number}", "Activation", "relu", tokens * width)
        pool = self.pool(place.grid)
        four: dict[str, Any] = {"reads": letter_power("l", len(pool.sides)), "reads_tokens": prod(pool.sides)}
        row = pooling("pool", "max", pool, out_grid.tokens * width, tokens * width)
        yield msgspec.structs.replace(row, mixing="local", content_dependent=True, **four)

    def notes(self, place: Place) -> Iterator[str]:
        yield from unread_note(self.pool(place.grid), place.grid)
