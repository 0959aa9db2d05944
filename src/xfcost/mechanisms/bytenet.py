"""ByteNet's residual block: a dilated convolution of half the width between two maps of each token."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import ComponentError, Operation, Place
from xfcost.formulas.conv_kernel import ConvolutionMixer
from xfcost.formulas.rows import convolution, elementwise, linear, norm


class ByteNet(ConvolutionMixer, frozen=True, kw_only=True, tag="bytenet"):
    """ReLU, d to d/2, norm, ReLU, W dilated taps, norm, ReLU, d/2 to d (Kalchbrenner et al. 2016, figure 3, left).

    The layer norm before the first ReLU is the residual's; the paper calls the width 2d and the half of it d.

        pointwise1  N·d·d/2 MACs
        conv        N·W·(d/2)² MACs
        pointwise2  N·(d/2)·d MACs
        norm, act   N·d/2 elements twice, and N·d of the first act
    """

    def check(self, place: Place) -> None:
        super().check(place)
        if place.dim % 2:
            raise ComponentError("kind", f"'bytenet' works at half the width, and {place.dim} is odd")

    def label(self) -> str:
        return f"ByteNet block, dilation {self.dilation}" if self.dilation > 1 else "ByteNet block"

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.tokens, place.dim
        half = d // 2
        yield elementwise("act1", "Activation", "relu", n * d)
        yield linear("pointwise1", "Pointwise convolution to half the width", n, d, half)
        yield from norm("layer_norm", "norm1", n, half)
        yield elementwise("act2", "Activation", "relu", n * half)
        yield from self.zeros(place, half)
        kernel = self.dilated_kernel.kernel(place.grid).sides
        sizes = {"inputs": self.inputs(place), "width": half, "out_width": half}
        yield convolution("conv", "Convolution", outputs=n, kernel=kernel, **sizes)
        yield from norm("layer_norm", "norm2", n, half)
        yield elementwise("act3", "Activation", "relu", n * half)
        yield linear("pointwise2", "Pointwise convolution back", n, half, d)
