"""Convolutions over the tokens of a sequence or a grid, and layers around one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Grid,
    HiddenUnits,
    Letter,
    Number,
    Operation,
    PaddingNote,
    Place,
    Ratio,
    Side,
    Width,
)
from xfcost.formulas.conv_kernel import (
    CentredKernelMixer,
    ConvKernel,
    ConvolutionMixer,
    KernelMixer,
    centred_kernel,
    check_mean_pool,
    pooling,
)
from xfcost.formulas.rows import convolution, depthwise_convolution, elementwise, glu, linear, norm
from xfcost.formulas.tensors import channels_first, reading
from xfcost.ledger.tensors import BEFORE, INPUT, RESIDUAL


class Conv(ConvolutionMixer, frozen=True, kw_only=True, tag="conv"):
    """N tokens of width d to N of the stage's width d', each out of W neighbours along every axis, δ apart.

    conv       N·W^r·d·o MACs, (W^r·d + β)·o parameters, with `form: plain`, on a grid of r axes
    depthwise  N·W^r·d MACs, (W^r + β)·d parameters: every channel's own kernel, with `depthwise` or `separable`
    pointwise  N·d·o MACs, (d + β)·o parameters: then a map of each token, with `form: separable`

    o = d', β is 1 where there are biases, else 0; with `depthwise` alone the width stays. A causal one is padded by
    (W - 1)·δ zeros before the first token (van den Oord et al. 2016, WaveNet, §2.1); any other by half of it on either
    side. With `act: glu` the output is twice as wide, o = 2·d', and its first half is multiplied by the sigmoid of its
    second (Dauphin et al. 2017; Gehring et al. 2017, §3.2).
    """

    form: Literal["plain", "depthwise", "separable"] = "plain"
    """`plain`, `depthwise`, or `separable`: depthwise, then pointwise."""
    bias: bool = True
    """Whether the convolution has a bias."""
    act: ActKind | Literal["glu", "none"] = "none"
    """Activation function after the convolution; `glu` gates one half of the channels by the other."""

    @property
    def widens(self) -> bool:
        return self.form != "depthwise"

    def check(self, place: Place) -> None:
        super().check(place)
        if self.form == "depthwise" and self.act == "glu":
            raise ComponentError(
                "act", "a gate halves the width, and a depthwise convolution can't double it; use separable"
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim if self.widens else place.dim

    def shortcut(self, place: Place) -> Iterator[Operation]:
        n, d, width = place.grid.tokens, place.dim, self.out(place)[1]
        if width != d:
            row = linear("residual_projection", "Projection of the residual stream", n, d, width)
            yield msgspec.structs.replace(reading(row, RESIDUAL), takes_input=True)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, width = place.grid.tokens, place.dim, self.out(place)[1]
        wide = 2 * width if self.act == "glu" else width
        kernel = self.dilated_kernel.kernel(place.grid).sides
        yield from self.zeros(place, d)
        if self.form == "plain":
            yield convolution("conv", "Convolution", (self.inputs(place), d), (n, wide), kernel, bias=self.bias)
        else:
            title, inputs = "Depthwise convolution", self.inputs(place)
            yield depthwise_convolution("depthwise", title, n, kernel, d, inputs=inputs, bias=self.bias)
        if self.form == "separable":
            yield linear("pointwise", "Pointwise convolution", n, d, wide, bias=self.bias)
        if self.act == "glu":
            yield glu(n * width)
        elif self.act != "none":
            yield elementwise("act", "Activation", self.act, n * width)


class ByteNet(ConvolutionMixer, frozen=True, kw_only=True, tag="bytenet"):
    """ReLU, d to d/2, norm, ReLU, W dilated taps, norm, ReLU, d/2 to d (Kalchbrenner et al. 2016, figure 3, left).

    The layer norm before the first ReLU is the residual's; the paper calls the width 2d and the half of it d.

        act1          N·d elements of ReLU
        pointwise1    N·d·d/2 MACs, (d + 1)·d/2 parameters
        norm1, norm2  N·d/2 elements of a layer norm, d parameters each
        act2, act3    N·d/2 elements of ReLU each
        conv          N·W·(d/2)² MACs, (W·d/2 + 1)·d/2 parameters
        pointwise2    N·(d/2)·d MACs, (d/2 + 1)·d parameters
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
        yield convolution("conv", "Convolution", (self.inputs(place), half), (n, half), kernel)
        yield from norm("layer_norm", "norm2", n, half)
        yield elementwise("act3", "Activation", "relu", n * half)
        yield linear("pointwise2", "Pointwise convolution back", n, half, d)


class DepthwiseConv(CentredKernelMixer, frozen=True, kw_only=True, tag="depthwise_conv"):
    """Every channel's own W×W kernel around every token, zeros beyond the border: static local mixing.

    N tokens on a grid of r axes, width d.

        conv   N·W^r·d MACs, (W^r + 1)·d parameters

    With `residual: {norm: none}` it is the position encoding generator PEG (Chu et al. 2023, CPVT, §3.2): x + conv(x)
    lets a token know its place by the zeros beyond the border, at any resolution. Twins has one behind the first
    block of each stage (Chu et al. 2021, §3.1).
    """

    short_name = "Depthwise convolution"

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W, odd."""

    def operations(self, place: Place) -> Iterator[Operation]:
        grid = place.grid
        yield depthwise_convolution("conv", "Depthwise convolution", grid.tokens, self.kernel(grid).sides, place.dim)


class AveragePool(CentredKernelMixer, frozen=True, kw_only=True, tag="average_pool"):
    """Average pooling of W×W neighbours, stride 1, less the token: pool(x) - x (Yu et al. 2022, §3.2, equation 4).

        pool      N·W^r·d additions, on a grid of r axes
        subtract  N·d additions, because the residual around it adds x again

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


class ConvMlp(HiddenUnits, CentredKernelMixer, frozen=True, kw_only=True, tag="conv_mlp"):
    """act(conv(xW₁ + b₁))W₂ + b₂, conv depthwise (Wang et al. 2022, PVT v2, §3.3).

    N tokens on a grid of r axes, width d, H hidden units, kernels of W×W around every token (zeros beyond the border,
    which show a token where it stands: PVT v2 has no other positions).

        fc1         N·d·H MACs, (d + 1)·H parameters
        hidden_act  N·H elements, where there is one
        conv        N·W^r·H MACs, (W^r + 1)·H parameters
        act         N·H elements
        fc2         N·H·d MACs, (H + 1)·d parameters
    """

    short_name = "Convolutional feed-forward"

    ratio: Ratio = 4.0
    """Hidden width over width, H/d, if `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    act: ActKind = "gelu"
    """Activation function after the convolution."""
    hidden_act: ActKind | Literal["none"] = "none"
    """Activation function before the convolution (a ReLU in PVT v2's linear variants, public code)."""

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.tokens, place.dim
        hidden = self.inner(d)
        yield linear("fc1", "MLP up-projection", n, d, hidden)
        if self.hidden_act != "none":
            yield elementwise("hidden_act", "Activation before the convolution", self.hidden_act, n * hidden)
        yield depthwise_convolution("conv", "Depthwise convolution", n, self.kernel(place.grid).sides, hidden)
        yield elementwise("act", "MLP activation", self.act, n * hidden)
        yield linear("fc2", "MLP down-projection", n, hidden, d)


class ConvModule(KernelMixer, frozen=True, kw_only=True, tag="conv_module"):
    """Pointwise convolution and gate, depthwise convolution, batch norm, Swish, pointwise (Gulati et al. 2020, §2.2).

    A sequence of N tokens, width d, a kernel of W tokens. The layer norm before it is the residual's.

        pointwise1  N·d·2d MACs, 2d² + 2d parameters
        glu         N·d elements: the first half of each token times the sigmoid of the second
        depthwise   N·W·d MACs, W·d + d parameters; (N+1)·W·d MACs where W is even
        norm        N·d elements of a batch norm, 2d parameters
        act         N·d elements of SiLU
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

    def kernel(self, grid: Grid) -> ConvKernel:
        """The kernel along the sequence."""
        return centred_kernel(grid, self.size)

    @property
    def spare(self) -> Number:
        """Outputs that are cropped: 1 where W is even."""
        return 1 - (self.size - self.size // 2 * 2)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """Pairs of all outputs, less the W/2 of the cropped one."""
        return super().pairs(grid) - self.spare * lesser(grid.tokens, self.size // 2)

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
