"""Attention with convolutional projections (CvT): depthwise convolutions before Q, K, V, strided for K, V."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from xfcost.formulas.attention import attention_of
from xfcost.formulas.component import ComponentError, Grid, Letter, Operation, Place, Side, check_odd
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import depthwise_convolution, elementwise, letter_power, linear, move, norm, on_raw_input
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Tensor, Tensors


class ConvAttention(NonCausalMixer, frozen=True, kw_only=True, tag="conv_attention"):
    """Q, K and V each by a depthwise convolution, a batch norm and a linear map (Wu et al. 2021, CvT, §3.2).

    N tokens on a grid, width d, h heads of width d_k, kernels of W×W padded by ⌊W/2⌋, R the `kv_stride`, M = ⌈√N/R⌉²
    keys; e special tokens, which go round the convolutions.

        q_conv         N·W²·d MACs, W²·d parameters, no bias
        q_norm         N·d elements
        q_join         (e+N)·d elements written, where there are special tokens
        q_linear       (e+N)·d·h·d_k MACs
        k_…, v_…       likewise, of M positions
        scale          by 1/√(h·d_k), the whole width's root, as the public code has it
        scores         (e+N)·(e+M)·h·d_k MACs, h·(e+N)·(e+M) entries kept
        weighted_sum   (e+N)·(e+M)·h·d_k MACs
        out            (e+N)·h·d_k·d MACs

    The convolutions give a token its place: CvT has no other positions.
    """

    short_name = "Convolutional-projection attention"
    non_causal_reason: ClassVar[str] = "a query and a key are made of their neighbours, later ones among them"

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W of the depthwise convolutions, odd."""
    kv_stride: Annotated[Side, Letter("R", least=2)] = 2
    """Stride R of the key and value convolutions."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_odd("size", self.size)
        if self.kv_stride > self.size // 2 + 1:
            raise ComponentError(
                "kv_stride",
                f"kernels of {self.size} at every {self.kv_stride} positions leave some that no key reads; "
                f"expected at most {self.size // 2 + 1}",
            )

    def kernel(self, grid: Grid, stride: int = 1) -> ConvKernel:
        """The kernel, centred on every `stride`-th token along each axis."""
        rank = len(grid.sides)
        return ConvKernel((self.size,) * rank, (stride,) * rank, (self.size // 2,) * rank)

    def keys(self, grid: Grid) -> Grid:
        """The grid of the keys."""
        return Grid(self.kernel(grid, self.kv_stride).out(grid.sides), grid.special)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = place.grid, place.dim
        inner, keys = self.inner(d), self.keys(grid)
        yield from self._projection("q", grid, place)
        yield from self._projection("k", keys, place)
        yield from self._projection("v", keys, place)
        yield elementwise(
            "scale",
            "Scale queries by the whole width, 1/√(h·d_k)",
            "multiply",
            grid.total * inner,
            of=("q_linear",),
            symbol="",
        )
        reads = "N" if self.kv_stride == 1 else f"N/{letter_power('R', len(grid.sides))}"
        # a key is made of several tokens, and makes no pair of tokens
        operands = ("scale", "k_linear", "v_linear")
        yield from attention_of(self, place, keys=keys.total, reads=reads, pairs=None, scaled=False, operands=operands)
        yield linear("out", "Output projection W_O", grid.total, inner, d, bias=self.projection_bias)

    def _projection(self, name: str, grid: Grid, place: Place) -> Iterator[Operation]:
        """Projection of Q, K or V with output `grid`."""
        what, d = name.upper(), place.dim
        kernel = self.kernel(place.grid).sides
        yield on_raw_input(
            depthwise_convolution(
                f"{name}_conv",
                f"{what} depthwise convolution",
                grid.tokens,
                kernel,
                d,
                inputs=place.grid.tokens,
                bias=False,
            )
        )
        yield from norm("batch_norm", f"{name}_norm", grid.tokens, d)
        if grid.special:
            joined = Tensors(
                (Tensor(INPUT, (place.grid.total, d)), Tensor(BEFORE, (grid.tokens, d))),
                (Tensor(OUTPUT, (grid.total, d)),),
            )
            yield move(f"{name}_join", f"{what}: join the special tokens", grid.total * d, tensors=joined)
        inner = self.inner(d)
        yield linear(f"{name}_linear", f"{what} projection", grid.total, d, inner, bias=self.projection_bias)

    def notes(self, place: Place) -> Iterator[str]:
        if place.grid.special:
            yield f"{place.grid.special} special token(s) skip the convolutions, and are concatenated after them"
