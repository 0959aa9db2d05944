"""Attention with convolutional projections (CvT): queries, keys and values are made of neighbours, keys of fewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from xfcost.formulas.attention import attention_core
from xfcost.formulas.causality import NeverCausal
from xfcost.formulas.component import Place, Side
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.letters import Letter
from xfcost.formulas.rows import depthwise, elementwise, linear, move, norm, of_input, power
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation


class ConvAttention(NeverCausal, frozen=True, kw_only=True, tag="conv_attention"):
    """Q, K and V each by a depthwise convolution, a batch norm and a linear map (Wu et al. 2021, CvT, §3.2).

    N tokens on a grid, width d, h heads of width d_k, kernels of W×W padded by ⌊W/2⌋, R the `kv_stride`, M = ⌈√N/R⌉²
    keys; e extra tokens, which go round the convolutions.

        q_conv         N·W²·d MACs, W²·d parameters, no bias
        q_norm         N·d elements
        q_join         (e+N)·d elements written, where there are extra tokens
        q_linear       (e+N)·d·h·d_k MACs
        k_…, v_…       likewise, of M positions
        scale          by 1/√(h·d_k), the whole width's root, as the public code has it
        scores         (e+N)·(e+M)·h·d_k MACs, h·(e+N)·(e+M) entries kept
        weighted_sum   (e+N)·(e+M)·h·d_k MACs
        out            (e+N)·h·d_k·d MACs

    The convolutions tell a token where it stands: CvT has no other positions.
    """

    because: ClassVar[str] = "a query and a key are made of their neighbours, later ones among them"

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W of the depthwise convolutions, odd."""
    kv_stride: Annotated[Side, Letter("R", least=2)] = 2
    """Stride R of the key and value convolutions."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.size % 2 == 0:
            odd = f"{self.size - 1} or {self.size + 1}"
            raise ComponentError("size", f"{self.size} is even, and a kernel stands around its middle; try {odd}")
        if self.kv_stride > self.size // 2 + 1:
            raise ComponentError(
                "kv_stride",
                f"kernels of {self.size} at every {self.kv_stride} positions leave some that no key reads; "
                f"expected at most {self.size // 2 + 1}",
            )

    def label(self) -> str:
        return "Convolutional-projection attention"

    def kernel(self, grid: Grid, stride: int = 1) -> Kernel:
        """Around every token, or every `stride`-th along each axis."""
        rank = len(grid.sides)
        return Kernel((self.size,) * rank, (stride,) * rank, (self.size // 2,) * rank)

    def keys(self, grid: Grid) -> Grid:
        """Where the keys stand."""
        return Grid(self.kernel(grid, self.kv_stride).out(grid.sides), grid.extra)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.total)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * grid.total

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = place.grid, place.dim
        inner, keys = self.inner(d), self.keys(grid)
        yield from self._projection("q", grid, place)
        yield from self._projection("k", keys, place)
        yield from self._projection("v", keys, place)
        yield elementwise(
            "scale", "Scale queries by the whole width, 1/√(h·d_k)", "multiply", grid.total * inner, symbol=""
        )
        yield from attention_core(
            queries=grid.total,
            keys=keys.total,
            heads=self.heads,
            inner=inner,
            mixing="global",
            reads="N" if self.kv_stride == 1 else f"N/{power('R', len(grid.sides))}",
            pairs=None,  # a key is made of several tokens, and makes no pair of tokens
            fused=place.fused,
            scaled=False,
        )
        yield linear("out", "Output projection W_O", grid.total, inner, d, bias=self.projection_bias)

    def _projection(self, name: str, grid: Grid, place: Place) -> Iterator[Operation]:
        """Of Q, K or V, which are to stand on `grid`."""
        what, d = name.upper(), place.dim
        kernel = self.kernel(place.grid).sides
        yield of_input(depthwise(f"{name}_conv", f"{what} depthwise convolution", grid.tokens, kernel, d, bias=False))
        yield from norm("batch_norm", f"{name}_norm", grid.tokens, d)
        if grid.extra:
            yield move(f"{name}_join", f"{what}: join the extra tokens", grid.total * d)
        inner = self.inner(d)
        yield linear(f"{name}_linear", f"{what} projection", grid.total, d, inner, bias=self.projection_bias)

    def notes(self, place: Place) -> Iterator[str]:
        if place.grid.extra:
            yield f"{place.grid.extra} extra token(s) go round the convolutions, and are joined behind them"
