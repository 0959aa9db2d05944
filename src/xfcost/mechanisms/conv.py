"""Convolutions over the tokens of a sequence or a grid, and layers around one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Grid,
    HiddenUnits,
    Letter,
    Mixer,
    Number,
    PaddingNote,
    Place,
    Ratio,
    Side,
    Width,
)
from xfcost.formulas.conv_kernel import (
    CentredKernelMixer,
    ConvKernel,
    DilatedKernel,
    KernelMixer,
    centred_kernel,
    check_mean_pool,
)
from xfcost.program.convolution import convolution, depthwise, in_rows, on_grid, pool, window
from xfcost.program.functions import difference, padded
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class ConvolutionMixer(Mixer, frozen=True, kw_only=True):
    """A convolution of stride 1 on a sequence or a grid, dilated and perhaps causal.

    A decode step caches its last (W - 1)·δ inputs.
    """

    decodes: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {"pad": "Zeros before the tokens", "conv": "Convolution"}

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W, odd unless it is causal."""
    dilation: Annotated[int, msgspec.Meta(ge=1, le=2**16), Letter(None)] = 1
    """Dilation δ: the distance between the kernel's taps, in tokens."""
    causal: bool | None = None
    """Whether a token reads no later token; by default true in a decoder and false elsewhere."""

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

    def convolved(self, t: Operations, name: str, x: Tensor, place: Place, outputs: Number, **options: Any) -> Tensor:
        """The convolution, (B, N, D) -> (B, N, D'); a causal one pads its input before it."""
        taps, sides = self.dilated_kernel, place.grid.sides
        kernel = taps.kernel(place.grid)
        if t.decodes:
            x = window(t, "window", x, self.size, self.dilation)
            y = convolution(t, name, on_grid(x, (self.size,)), outputs, kernel, (1,), **options)
        else:
            x = on_grid(x, sides)
            if self.causal and self.size > 1:
                x = t.leaf("pad", padded, x, options={"dim": -1, "before": taps.back})
            y = convolution(t, name, x, outputs, kernel, sides, dilation=self.dilation, **options)
        return in_rows(y)


def glu(t: Functions, x: Tensor) -> Tensor:
    """The first half of the width times the sigmoid of the second: (B, N, 2D) -> (B, N, D) (Dauphin et al. 2017)."""
    value, gate = x.chunk(2, -1)
    return value * gate.sigmoid()


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

    titles: ClassVar[Mapping[str, str]] = {
        **ConvolutionMixer.titles,
        "pointwise": "Pointwise convolution",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        width = self.out(place)[1]
        wide = 2 * width if self.act == "glu" else width
        if self.form == "plain":
            y = self.convolved(t, "conv", x, place, wide, bias=self.bias)
        else:
            y = self.convolved(t, "depthwise", x, place, place.dim, groups=place.dim, bias=self.bias)
        if self.form == "separable":
            y = t.linear("pointwise", y, wide, bias=self.bias)
        return t.leaf("glu", glu, y) if self.act == "glu" else t.act("act", y, self.act)

    def skip(self, t: Operations, given: Tensor, x: Tensor, place: Place) -> Tensor:
        width = self.out(place)[1]
        return x if width == place.dim else t.linear("residual_projection", given, width)


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

    titles: ClassVar[Mapping[str, str]] = {
        **ConvolutionMixer.titles,
        **dict.fromkeys(("act1", "act2", "act3"), "Activation"),
        "pointwise1": "Pointwise convolution to half the width",
        "pointwise2": "Pointwise convolution back",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        half = place.dim // 2
        y = t.linear("pointwise1", t.act("act1", x, "relu"), half)
        y = t.act("act2", t.norm("norm1", y, "layer_norm"), "relu")
        y = t.norm("norm2", self.convolved(t, "conv", y, place, half), "layer_norm")
        return t.linear("pointwise2", t.act("act3", y, "relu"), place.dim)


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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        sides = place.grid.sides
        return in_rows(depthwise(t, "conv", on_grid(x, sides), self.kernel(place.grid), sides))


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

    titles: ClassVar[Mapping[str, str]] = {"subtract": "Subtract the token"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        sides, kernel = place.grid.sides, self.kernel(place.grid)
        mean = pool(t, "pool", on_grid(x, sides), "mean", kernel, sides, count_padding=False)
        return t.leaf("subtract", difference, in_rows(mean), x)


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

    titles: ClassVar[Mapping[str, str]] = {"hidden_act": "Activation before the convolution", "act": "MLP activation"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        sides, hidden = place.grid.sides, self.inner(place.dim)
        x = t.linear("fc1", x, hidden)
        x = t.act("hidden_act", x, self.hidden_act)
        x = in_rows(depthwise(t, "conv", on_grid(x, sides), self.kernel(place.grid), sides))
        x = t.act("act", x, self.act)
        return t.linear("fc2", x, place.dim)


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

    titles: ClassVar[Mapping[str, str]] = {
        "pointwise1": "Pointwise convolution, twice as wide",
        "act": "Swish",
        "pointwise2": "Pointwise convolution",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, d = place.grid.tokens, place.dim
        x = on_grid(t.leaf("glu", glu, t.linear("pointwise1", x, 2 * d)), (n,))
        y = in_rows(depthwise(t, "depthwise", x, self.kernel(place.grid), (n + self.spare,))).narrow(1, 0, n)
        return t.linear("pointwise2", t.act("act", t.norm("norm", y, "batch_norm"), "silu"), d)

    def notes(self, place: Place) -> Iterator[str]:
        if self.spare:
            n = place.grid.tokens
            yield PaddingNote(
                f"an even kernel of {self.size}, padded by {self.size // 2} on either side, gives {n + 1} outputs for "
                f"{n} tokens: the last is computed and dropped"
            )
