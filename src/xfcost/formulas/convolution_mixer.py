"""Base of mixers that convolve a sequence or a grid with a dilated kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from xfcost.formulas.component import Grid, Letter, Mixer, Number, Operation, Place, Side, single_token
from xfcost.formulas.dilated_kernel import DilatedKernel
from xfcost.formulas.rows import convolution_cache_write, decode_step, move
from xfcost.formulas.tensors import copied

Dilation = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class ConvolutionMixer(Mixer, frozen=True, kw_only=True):
    """A convolution of stride 1 on a sequence or a grid, dilated and perhaps causal."""

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W, odd unless it is causal."""
    dilation: Annotated[Dilation, Letter(None)] = 1
    """Dilation δ: the distance between the kernel's taps, in tokens."""
    causal: bool | None = None
    """Whether a token reads no later token; by default as its stream: true in a decoder, else false."""

    @property
    def dilated_kernel(self) -> DilatedKernel:
        """Its kernel: W taps, dilation δ."""
        return DilatedKernel(self.size, self.dilation, bool(self.causal))

    def check(self, place: Place) -> None:
        self.dilated_kernel.check(place.grid)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.dilated_kernel.reads(grid, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.dilated_kernel.pairs(grid)

    def label(self) -> str:
        words = ["Causal" if self.causal else "", "dilated" if self.dilation > 1 else "", "convolution"]
        return " ".join(word for word in words if word).capitalize()

    def step(self, place: Place) -> Iterator[Operation]:
        """One position; the last (W - 1)·δ inputs are cached."""
        return decode_step(self.operations(single_token(place)), place.grid.total)

    def zeros(self, place: Place, width: Number) -> Iterator[Operation]:
        """Causal zero padding before the first token."""
        if padded := self.dilated_kernel.padded(place.grid):
            cached_inputs = tuple(convolution_cache_write(width, self.size, self.dilation))
            tensors = copied((place.grid.tokens, width), (padded, width))
            yield move("pad", "Zeros before the tokens", padded * width, in_decode=cached_inputs, tensors=tensors)

    def inputs(self, place: Place) -> Number:
        """Tokens that the convolution is given, with the zeros before them."""
        return self.dilated_kernel.padded(place.grid) or place.grid.tokens
