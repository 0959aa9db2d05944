"""Conformer's convolution module: a gated map of each token, a depthwise convolution along the sequence, a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import ComponentError, Grid, Letter, Mixer, Number, Operation, PaddingNote, Place, Side
from xfcost.formulas.conv_kernel import Kernel, centred_kernel
from xfcost.formulas.rows import depthwise_convolution, elementwise, glu, linear, norm
from xfcost.formulas.tensors import channels_first
from xfcost.ledger.tensors import BEFORE


class ConvModule(Mixer, frozen=True, kw_only=True, tag="conv_module"):
    """Pointwise convolution and gate, depthwise convolution, batch norm, Swish, pointwise (Gulati et al. 2020, §2.2).

    A sequence of N tokens, width d, a kernel of W tokens. The layer norm before it is the residual's.

        pointwise1  N·d·2d MACs, 2d² + 2d parameters
        glu         N·d elements: the first half of each token times the sigmoid of the second
        depthwise   N·W·d MACs, W·d + d parameters; (N+1)·W·d MACs where W is even
        norm        N·d elements, 2d parameters
        act         N·d elements
        pointwise2  N·d² MACs, d² + d parameters

    The kernel is padded by ⌊W/2⌋ on either side. An even one, as the paper's 32, then gives one output too many: it is
    computed, and the last is dropped. A token reads W/2 tokens before itself, itself and W/2 - 1 after.
    """

    short_name = "Convolution module"

    size: Annotated[Side, Letter("W")] = 32
    """Kernel size W of the depthwise convolution, in tokens."""

    def check(self, place: Place) -> None:
        if len(place.grid.sides) != 1 or place.grid.special:
            raise ComponentError(
                "kind",
                f"'conv_module' convolves along a sequence, got {place.grid.shape_text()} tokens; fold an "
                "axis of a grid into the width with {kind: fold_axis}, and leave special tokens out",
            )

    def kernel(self, grid: Grid) -> Kernel:
        """The kernel along the sequence."""
        return centred_kernel(grid, self.size)

    @property
    def spare(self) -> Number:
        """Outputs that are cropped: 1 where W is even."""
        return 1 - (self.size - self.size // 2 * 2)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.kernel(grid).reads(grid.sides, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """Pairs of all outputs, less the W/2 of the cropped one."""
        return self.kernel(grid).pairs(grid.sides) - self.spare * lesser(grid.tokens, self.size // 2)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.tokens, place.dim
        yield linear("pointwise1", "Pointwise convolution, twice as wide", n, d, 2 * d)
        yield glu(n * d)
        conv = depthwise_convolution("depthwise", "Depthwise convolution", n + self.spare, (self.size,), d, inputs=n)
        yield conv
        yield from (channels_first(row, BEFORE, n, d) for row in norm("batch_norm", "norm", n, d))
        yield elementwise("act", "Swish", "silu", n * d)
        yield linear("pointwise2", "Pointwise convolution", n, d, d)

    def notes(self, place: Place) -> Iterator[str]:
        if self.spare:
            n = place.grid.tokens
            yield PaddingNote(
                f"an even kernel of {self.size}, padded by {self.size // 2} on either side, gives {n + 1} outputs for "
                f"{n} tokens: the last is computed and dropped"
            )
