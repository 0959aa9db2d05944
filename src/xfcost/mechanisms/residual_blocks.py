"""Blocks of convolutional networks: ResNet, MobileNet, VGG, ConvNeXt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, rounded
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Grid,
    HiddenUnits,
    Letter,
    Mixer,
    NormKind,
    Number,
    Observed,
    Place,
    Ratio,
    Side,
    Width,
    check_divides,
    check_no_special_tokens,
    check_odd,
)
from xfcost.formulas.conv_kernel import (
    CentredKernelMixer,
    ConvKernel,
    KernelMixer,
    centred_kernel,
    kernel_of,
    pairs_of_one_kernel,
    pairs_of_two_kernels,
    receptive_field,
    tokens_read,
    unread_note,
)
from xfcost.ledger.errors import divisors_text
from xfcost.ledger.grid import sides_text
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation
from xfcost.program.convolution import convolution, depthwise, grid_norm, in_rows, on_grid, pool
from xfcost.program.functions import added, multiplied
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Shape, Tensor


def strided_grid(grid: Grid, stride: int) -> Grid:
    """Every `stride`-th position along every axis, from the first."""
    return Grid(tuple(ceil_div(side, stride) for side in grid.sides))


# Squeezed width over the width of the block's input.
Squeeze = Annotated[float, msgspec.Meta(gt=0, le=2**10)]


def squeezed_width(squeeze: float, width: Number) -> Number:
    """r·d, as a whole number."""
    return rounded(width, squeeze)


def check_squeeze(squeeze: float | None, width: int) -> None:
    """Raise ComponentError where `squeeze` leaves no channel."""
    if squeeze is not None and not squeezed_width(squeeze, width):
        raise ComponentError("squeeze", f"{squeeze:g} of the width {width} is no channel at all; try 0.25")


def normed(
    t: Operations, names: tuple[str, str], x: Tensor, outputs: Number, kernel: ConvKernel, sides: Shape, **facts: Any
) -> Tensor:
    """A convolution without bias and its batch norm, on a grid, to one of `sides`."""
    conv, norm = names
    return grid_norm(t, norm, convolution(t, conv, x, outputs, kernel, sides, bias=False, **facts))


def squeezed(t: Operations, x: Tensor, hidden: Number, act: ActKind, grid: Grid) -> Tensor:
    """Squeeze-and-excitation (Hu et al. 2018, §3): the mean over all tokens becomes a gate for each of their channels.

    N' tokens of width w, w' squeezed channels: (B, W, *sides) -> (B, W, *sides).

    squeeze_pool   N'·w additions
    squeeze_conv1  w·w' MACs, (w + 1)·w' parameters, whatever N' is
    squeeze_act    the activation `act` between them
    squeeze_conv2  w'·w MACs, (w' + 1)·w parameters
    squeeze_scale  N'·w multiplications by the gate, which all tokens decide
    """
    width, kernel, t = x.shape[1], centred_kernel(grid, 1), t.part("squeeze")
    all_tokens: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": grid.tokens}
    single = kernel.sides
    mean = t.leaf("pool", grid_mean, x, title="Squeeze: mean over tokens", **all_tokens)
    y = t.act("act", convolution(t, "conv1", mean, hidden, kernel, single, title="Squeeze"), act)
    y = convolution(t, "conv2", y, width, kernel, single, title="Excitation")
    gate = t.act("gate", y, "sigmoid", title="Sigmoid of the gate")
    title = "Scale channels by the gate"
    return t.leaf("scale", multiplied, x, gate, title=title, content_dependent=True, **all_tokens)


def grid_mean(t: Functions, x: Tensor) -> Tensor:
    """(B, W, *sides) -> (B, W, 1, …)."""
    return x.flatten(2).mean(-1, keepdim=True).unflatten(-1, (1,) * (x.dim() - 2))


class ConvBlock(Mixer, frozen=True, kw_only=True):
    """relu(f(x) + shortcut(x)), f being convolutions with batch norms (He et al. 2016, §3.3 and §4.1).

    The output has the stage's width and, with a stride s, every s-th position along every axis. Where the shape changes
    the shortcut is a 1×1 convolution with a batch norm (option B), else x itself. Convolutions have no bias; the norms
    after them have one.
    """

    widens: ClassVar[bool] = True

    residual: Literal["none"] = "none"
    """Only `none`: the block has its own shortcut."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis."""

    def kernels(self, grid: Grid) -> Sequence[ConvKernel]:
        """The kernels of f, in order."""
        raise NotImplementedError

    def check(self, place: Place) -> None:
        centred_kernel(place.grid, 1, self.stride).check(place.grid)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return strided_grid(place.grid, self.stride), place.out_dim

    def projects(self, place: Place) -> bool:
        """Is the shortcut a convolution?"""
        return self.stride > 1 or place.dim != place.out_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return receptive_field(self.kernels(grid), grid, [token])

    def carried(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        """The shortcut, on the grids: x by a 1×1 convolution and its norm, or as it is."""
        if not self.projects(place):
            return x
        (grid, width), names = self.out(place), ("shortcut.conv", "shortcut.norm")
        kernel = centred_kernel(place.grid, 1, self.stride)
        return normed(t, names, x, width, kernel, grid.sides, title="Shortcut convolution")


class Basic(ConvBlock, frozen=True, kw_only=True, tag="basic"):
    """Two 3×3 convolutions, as in ResNet-18 and -34 (He et al. 2016, figure 5, left).

    N tokens of width d on a grid of r axes; N' leave, N/s² with the stride s, of the stage's width d'.

        conv1                        3^r·N'·d·d' MACs, at the stride, 3^r·d·d' parameters
        conv2                        3^r·N'·d'² MACs, 3^r·d'² parameters
        shortcut_conv                N'·d·d' MACs, d·d' parameters, where s > 1 or d' ≠ d
        norm1, norm2, shortcut_norm  N'·d' elements of a batch norm, 2d' parameters each, where there is a convolution

    A token reads 5×5 neighbours.
    """

    short_name = "Basic block"

    def kernels(self, grid: Grid) -> Sequence[ConvKernel]:
        return centred_kernel(grid, 3, self.stride), centred_kernel(grid, 3)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return prod(pairs_of_two_kernels(side, self.stride) for side in grid.sides)

    titles: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("conv1", "conv2"), "3×3 convolution"),
        "add": "Residual add",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        (grid, width), (first, second) = self.out(place), self.kernels(place.grid)
        x = on_grid(x, place.grid.sides)
        y = t.act("act1", normed(t, ("conv1", "norm1"), x, width, first, grid.sides), "relu")
        y = normed(t, ("conv2", "norm2"), y, width, second, grid.sides)
        kept = self.carried(t, x, place)
        return in_rows(t.act("act2", t.leaf("add", added, kept, y, role="add"), "relu"))


class Bottleneck(ConvBlock, frozen=True, kw_only=True, tag="bottleneck"):
    """1×1, 3×3 and 1×1 convolutions, each with its batch norm (He et al. 2016, figure 5, right).

    N tokens of width d on a grid of r axes; N' leave, N/s² with the stride s, of the stage's width d'; inside the width
    is w, and the 3×3 convolution has g groups (ResNeXt's and RegNet's).

        conv1                 n·d·w MACs, d·w parameters
        norm1                 n·w elements of a batch norm, 2w parameters
        conv2                 3^r·N'·w²/g MACs, at the stride, 3^r·w²/g parameters, without `spatial`
        norm2                 N'·w elements of a batch norm, 2w parameters
        conv3                 N'·w·d' MACs, w·d' parameters
        shortcut_conv         N'·d·d' MACs, d·d' parameters, where s > 1 or d' ≠ d
        norm3, shortcut_norm  N'·d' elements of a batch norm, 2d' parameters each, where there is a convolution

    n = N; `stride_on: 1x1` is the paper's first version: conv1 has the stride, n = N', and what it leaves out is read
    by nothing. With `squeeze` the block has squeeze-and-excitation behind the 3×3 (Hu et al. 2018; where and how wide
    as RegNetY, Radosavovic et al. 2020, §5.3): the mean over all N' tokens, two 1×1 convolutions with biases to
    `squeeze`·d (of the block's input) and back, and a sigmoid that multiplies every token. That mixes globally,
    content-dependent.

    `spatial` replaces the 3×3 by another mixer, w wide: its rows are called `spatial_…`.
    """

    width: Width | None = None
    """Inner width w; d'/`expansion` by default."""
    expansion: Annotated[Width | None, Letter(None)] = None
    """Output width over inner width, d'/w; 4 by default, if `width` is not given either."""
    stride_on: Literal["1x1", "3x3"] = "3x3"
    """Which convolution has the stride: the 3×3 (the later version) or the first 1×1 (the paper's)."""
    groups: Annotated[Width | None, Letter("h")] = None
    """Number of groups g of the 3×3 convolution; 1 by default."""
    group_width: Annotated[Width | None, Letter("dₖ")] = None
    """Channels per group, w/g, instead of `groups`."""
    squeeze: Squeeze | None = None
    """Ratio r of squeeze-and-excitation, r·d hidden units (Hu et al. 2018); none by default."""
    spatial: LocalAttention | LocalRelation | None = None
    """A mechanism that replaces the 3×3 convolution; the block sets its stride."""

    @property
    def has_windows(self) -> bool:
        return self.spatial is not None and bool(self.spatial_mixer.has_windows)

    @property
    def spatial_mixer(self) -> Any:
        """The mixer that replaces the 3×3 convolution, with the block's stride; None by default."""
        if self.spatial is None:
            return None
        return msgspec.structs.replace(self.spatial, stride=self.strides[1])

    @property
    def strides(self) -> tuple[int, int]:
        """Strides of conv1 and of the 3×3."""
        return (self.stride, 1) if self.stride_on == "1x1" else (1, self.stride)

    def observed(self, place: Place) -> Observed:
        left_out = {} if self.spatial is None else self.spatial.observed(place).left_out
        return Observed(left_out={f"spatial_{row}": reason for row, reason in left_out.items()})

    def check(self, place: Place) -> None:
        super().check(place)
        if self.width is not None and self.expansion is not None:
            raise ComponentError("expansion", "means the same as `width`; leave one of the two out")
        expansion = self.expansion or 4
        if self.width is None and place.out_dim % expansion:
            raise ComponentError(
                "expansion",
                f"{expansion} does not divide the stage's width {place.out_dim}; it could be "
                f"{divisors_text(place.out_dim)}, or give `width`",
            )
        self._check_groups(self.inner(place))
        check_squeeze(self.squeeze, place.dim)
        if self.spatial is not None:
            self._check_spatial(place)

    def _check_groups(self, width: int) -> None:
        if self.groups is not None and self.group_width is not None:
            raise ComponentError("group_width", "means the same as `groups`; leave one of the two out")
        for field in ("groups", "group_width"):
            value = getattr(self, field)
            if value is not None:
                check_divides(field, value, width, f"the inner width {width}")

    def _check_spatial(self, place: Place) -> None:
        for field in ("groups", "group_width", "squeeze"):
            if getattr(self, field) is not None:
                raise ComponentError(field, "belongs to the 3×3 convolution, which `spatial` replaces; leave it out")
        for field, expected in (("stride", 1), ("residual", None)):
            if getattr(self.spatial, field) != expected:
                raise ComponentError("spatial", f"`{field}` belongs to the block; write it there")
        component, inner_place = self.spatial_mixer, self.inside(place)
        try:
            component.check(inner_place)
        except ComponentError as error:
            raise ComponentError("spatial", f"{error.field}: {error.message}") from None
        spatial_grid, output_grid = component.out(inner_place)[0], self.out(place)[0]
        if spatial_grid != output_grid:
            raise ComponentError(
                "spatial",
                f"leaves {sides_text(spatial_grid.sides)} positions, and the shortcut {sides_text(output_grid.sides)}; "
                f"expected a grid that the stride {self.stride} divides",
            )

    def label(self) -> str:
        name = "SE bottleneck" if self.squeeze is not None else "Bottleneck"
        return name if self.spatial is None else f"{name}, {self.spatial_mixer.label()}"

    def inner(self, place: Place) -> Number:
        """w."""
        return place.out_dim // (self.expansion or 4) if self.width is None else self.width

    def grouped(self, place: Place) -> Number:
        """g."""
        if self.group_width is not None:
            return self.inner(place) // self.group_width
        return 1 if self.groups is None else self.groups

    def inside(self, place: Place) -> Place:
        """The place after conv1."""
        width = self.inner(place)
        return msgspec.structs.replace(place, grid=strided_grid(place.grid, self.strides[0]), dim=width, out_dim=width)

    def kernels(self, grid: Grid) -> Sequence[ConvKernel]:
        return centred_kernel(grid, 1, self.strides[0]), centred_kernel(grid, 3, self.strides[1])

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        first = centred_kernel(grid, 1, self.strides[0])
        if self.spatial is not None:
            inner_grid = strided_grid(grid, self.strides[0])
            return receptive_field([first], grid, self.spatial_mixer.reads(inner_grid, token))
        if self.squeeze is None:
            return super().reads(grid, token)
        return receptive_field(self.kernels(grid), grid, range(strided_grid(grid, self.stride).tokens))

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        first, second = self.strides
        inner_grid = strided_grid(grid, first)
        if self.spatial is not None:
            return self.spatial_mixer.pairs(inner_grid)
        if self.squeeze is None:
            return prod(pairs_of_one_kernel(side, second) for side in inner_grid.sides)
        return strided_grid(grid, self.stride).tokens * prod(tokens_read(side, second) for side in inner_grid.sides)

    titles: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("conv1", "conv3"), "1×1 convolution"),
        "add": "Residual add",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inside, (grid, width), first = self.inside(place), self.out(place), self.kernels(place.grid)[0]
        x = on_grid(x, place.grid.sides)
        y = t.act("act1", normed(t, ("conv1", "norm1"), x, inside.dim, first, inside.grid.sides), "relu")
        y = self._mixed(t, y, place)
        mixed = grid_norm(t, "norm2", y)
        y = t.act("act2", mixed, "relu")
        if self.squeeze is not None:
            y = squeezed(t, y, squeezed_width(self.squeeze, place.dim), "relu", grid)
        y = normed(t, ("conv3", "norm3"), y, width, centred_kernel(grid, 1), grid.sides)
        kept = self.carried(t, x, place)
        return in_rows(t.act("act3", t.leaf("add", added, kept, y, role="add"), "relu"))

    def _mixed(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        """The 3×3 convolution or its replacement, on their grids."""
        inside, sides = self.inside(place), self.out(place)[0].sides
        if self.spatial is not None:
            mixer = self.spatial_mixer
            spatial = t.part("spatial", titles=mixer.titles)
            return on_grid(mixer.forward(spatial, in_rows(x), inside), sides)
        groups, kernel = self.grouped(place), self.kernels(place.grid)[1]
        title = "3×3 convolution" if groups == 1 else "Grouped 3×3 convolution"
        return convolution(t, "conv2", x, inside.dim, kernel, sides, groups=groups, bias=False, title=title)

    def notes(self, place: Place) -> Iterator[str]:
        if self.spatial is not None:
            yield from self.spatial_mixer.notes(self.inside(place))
        if self.stride > 1 and self.stride_on == "1x1":
            unread = place.grid.tokens - strided_grid(place.grid, self.stride).tokens
            yield (
                f"stride {self.stride} on the first 1×1 convolution: {unread} of {place.grid.tokens} positions are "
                "read by nothing"
            )


class InvertedResidual(HiddenUnits, KernelMixer, frozen=True, kw_only=True, tag="inverted_residual"):
    """1×1, depthwise W×W and 1×1 convolutions with batch norms; x is added where the shape stays.

    Sandler et al. 2018, §3.3, with ReLU6, 3×3 and an expansion of 6; MobileViT has Swish and expansions of 2 and 4
    (Mehta and Rastegari 2022, §3.2). N tokens of width d on a grid of r axes; N' leave, N/s² with the stride s, of the
    stage's width d'; H hidden units.

        expand_conv   N·d·H MACs, d·H parameters, where H ≠ d
        expand_norm   N·H elements of a batch norm, 2H parameters, where H ≠ d
        conv          W^r·N'·H MACs, at the stride, W^r·H parameters
        norm          N'·H elements of a batch norm, 2H parameters
        project_conv  N'·H·d' MACs, H·d' parameters, and no activation behind its norm
        project_norm  N'·d' elements of a batch norm, 2d' parameters
        add           N'·d additions, where s = 1 and d' = d

    With `squeeze` squeeze-and-excitation stands before the projection: the mean over all N' tokens, H numbers, is
    mapped to `squeeze`·d (of the block's input) and back, and multiplies every token. That mixes globally,
    content-dependent. This is EfficientNet's MBConv, with Swish and a squeeze of ¼ (Tan and Le 2019, §4 and Table 1).

    No convolution has a bias but those of the squeeze: the norm behind it has.
    """

    widens: ClassVar[bool] = True
    short_name = "Inverted residual"

    residual: Literal["none"] = "none"
    """Only `none`: the block has its own shortcut."""
    ratio: Ratio = 4.0
    """Hidden width over width, H/d, if `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    stride: Annotated[Literal[1, 2], Letter(None)] = 1
    """Stride s of the depthwise convolution."""
    size: Annotated[int, msgspec.Meta(ge=3, le=2**16), Letter("W")] = 3
    """Kernel side W of the depthwise convolution, odd."""
    act: ActKind = "silu"
    """Activation function behind the first two norms, and inside the squeeze."""
    squeeze: Squeeze | None = None
    """Ratio r of squeeze-and-excitation, r·d hidden units (Hu et al. 2018); none by default."""

    def check(self, place: Place) -> None:
        check_odd("size", self.size)
        self.kernel(place.grid).check(place.grid)
        super().check(place)
        check_squeeze(self.squeeze, place.dim)

    def label(self) -> str:
        return self.short_name if self.squeeze is None else "SE inverted residual"

    def kernel(self, grid: Grid) -> ConvKernel:
        """The depthwise kernel."""
        return centred_kernel(grid, self.size, self.stride)

    def expands(self, place: Place) -> bool:
        """Does it have an expanding convolution?"""
        return bool(self.inner(place.dim) != place.dim)

    def adds(self, place: Place) -> bool:
        """Is x added?"""
        return self.stride == 1 and place.dim == place.out_dim

    def out(self, place: Place) -> tuple[Grid, Number]:
        return strided_grid(place.grid, self.stride), place.out_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        if self.squeeze is not None:
            return range(grid.tokens)  # the gate's mean: kernels are wider than the stride and leave no token out
        return super().reads(grid, token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        if self.squeeze is not None:
            return strided_grid(grid, self.stride).tokens * grid.tokens
        return super().pairs(grid)

    titles: ClassVar[Mapping[str, str]] = {"add": "Residual add"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        sides, (grid, width), hidden = place.grid.sides, self.out(place), self.inner(place.dim)
        one = centred_kernel(grid, 1)
        x = y = on_grid(x, sides)
        if self.expands(place):
            names = ("expand.conv", "expand.norm")
            y = normed(t, names, x, hidden, one, sides, title="Expanding convolution")
            y = t.act("expand.act", y, self.act)
        kernel, depth = self.kernel(place.grid), {"groups": hidden, "title": "Depthwise convolution"}
        y = t.act("act", normed(t, ("conv", "norm"), y, hidden, kernel, grid.sides, **depth), self.act)
        if self.squeeze is not None:
            y = squeezed(t, y, squeezed_width(self.squeeze, place.dim), self.act, grid)
        names = ("project_conv", "project_norm")
        y = normed(t, names, y, width, one, grid.sides, title="Projecting convolution")
        return in_rows(t.leaf("add", added, x, y, role="add") if self.adds(place) else y)


class Vgg(KernelMixer, frozen=True, kw_only=True, tag="vgg"):
    """n 3×3 convolutions with ReLU, then the maximum of disjoint 2×2 (Simonyan and Zisserman 2015, §2.1 and Table 1).

    N tokens of width d on a grid of r axes become N' = N/2^r of the stage's width d'; a side that is odd loses its last
    position.

        conv1         3^r·N·d·d' MACs, (3^r·d + 1)·d' parameters
        conv2, conv3  3^r·N·d'² MACs, (3^r·d' + 1)·d' parameters each, and so on to the n-th, where n > 1
        norm…         N·d' elements of a batch norm behind each, 2d' parameters, where there is a norm
        act…          N·d' elements of ReLU behind each
        pool          N'·2^r·d' comparisons of disjoint windows, which become new tokens

    A token that leaves reads (2n + 2)×(2n + 2) tokens.
    """

    widens: ClassVar[bool] = True
    short_name = "VGG block"

    residual: Literal["none"] = "none"
    """Only `none`: there is no shortcut."""
    convs: Annotated[int, msgspec.Meta(ge=1, le=2**8), Letter(None)] = 2
    """Number n of convolutions."""
    norm: Literal["none", "batch_norm"] = "none"
    """Norm behind each convolution."""

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "a kernel slides over a grid")
        if min(place.grid.sides) < 2:  # noqa: PLR2004 - the pool's side
            raise ComponentError(
                "kind", f"halves every side, and the grid is {sides_text(place.grid.sides)}; use a larger input"
            )

    def pool(self, grid: Grid) -> ConvKernel:
        """The kernel of the max-pool."""
        return kernel_of(grid, 2, 2, 0)

    def kernel(self, grid: Grid) -> ConvKernel:
        """Convolutions and pool as one kernel: what a token that leaves reads."""
        return kernel_of(grid, 2 * self.convs + 2, 2, self.convs)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(self.pool(place.grid).out(place.grid.sides)), place.out_dim

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        (grid, width), sides, kernel = self.out(place), place.grid.sides, centred_kernel(place.grid, 3)
        y = on_grid(x, sides)
        for number in range(1, self.convs + 1):
            y = convolution(t, f"conv{number}", y, width, kernel, sides, title="3×3 convolution")
            y = y if self.norm == "none" else grid_norm(t, f"norm{number}", y)
            y = t.act(f"act{number}", y, "relu", title="Activation")
        return in_rows(pool(t, "pool", y, "max", self.pool(place.grid), grid.sides))

    def notes(self, place: Place) -> Iterator[str]:
        yield from unread_note(self.pool(place.grid), place.grid)


class ConvNext(HiddenUnits, CentredKernelMixer, frozen=True, kw_only=True, tag="convnext"):
    """Depthwise convolution, norm, and an inverted bottleneck in one residual (Liu et al. 2022, §2.6, figure 4).

    N tokens on a grid of r axes, width d, kernels of W×W around every token (zeros beyond the border), H hidden units.

        conv   N·W^r·d MACs, (W^r + 1)·d parameters
        norm   N·d elements, 2d parameters (an RMS norm d parameters), where there is a norm
        fc1    N·d·H MACs, (d + 1)·H parameters
        act    N·H elements
        fc2    N·H·d MACs, (H + 1)·d parameters

    The paper's residual has no norm before the block and LayerScale behind it: `residual: {norm: none, layer_scale:
    1.0e-6}`.
    """

    short_name = "ConvNeXt block"

    size: Annotated[Side, Letter("W")] = 7
    ratio: Ratio = 4.0
    """Hidden width over width, H/d, if `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    norm: NormKind = "layer_norm"
    """Norm after the convolution."""
    act: ActKind = "gelu"
    """Activation function between the two linear maps."""

    titles: ClassVar[Mapping[str, str]] = {"act": "MLP activation"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        sides = place.grid.sides
        y = in_rows(depthwise(t, "conv", on_grid(x, sides), self.kernel(place.grid), sides))
        y = t.norm("norm", y, self.norm)
        y = t.linear("fc1", y, self.inner(place.dim))
        y = t.act("act", y, self.act)
        return t.linear("fc2", y, place.dim)
