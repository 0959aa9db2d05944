"""The bottleneck of residual networks: 1×1, 3×3 (or another mixer), 1×1, and a shortcut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Letter,
    Number,
    Observed,
    Operation,
    Place,
    Width,
    check_divides,
)
from xfcost.formulas.conv_block import (
    ConvBlock,
    Squeeze,
    check_squeeze,
    convolution_and_norm,
    squeeze_rows,
    squeezed_width,
    strided_grid,
)
from xfcost.formulas.conv_kernel import (
    Kernel,
    kernel_of_three,
    pairs_of_one_kernel,
    pointwise_kernel,
    receptive_field,
    tokens_read,
)
from xfcost.formulas.rows import elementwise
from xfcost.formulas.tensors import channels_first, within
from xfcost.ledger.errors import divisors_text
from xfcost.ledger.grid import sides_text
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.local_relation import LocalRelation


class Bottleneck(ConvBlock, frozen=True, kw_only=True, tag="bottleneck"):
    """1×1, 3×3 and 1×1 convolutions, each with its batch norm (He et al. 2016, figure 5, right).

    N tokens of width d on a grid; N' leave, N/s² with the stride s, of the stage's width d'; inside the width is w, and
    the 3×3 convolution has g groups (ResNeXt's and RegNet's).

        conv1          N·d·w MACs
        conv2          9·N'·w²/g MACs, at the stride
        conv3          N'·w·d' MACs
        shortcut_conv  N'·d·d' MACs, where s > 1 or d' ≠ d
        norm           twice their width in parameters behind each

    `stride_on: 1x1` is the paper's first version: conv1 has the stride, N'·d·w MACs, and what it leaves out is read by
    nothing. With `squeeze: r` the block has squeeze-and-excitation behind the 3×3 (Hu et al. 2018; where and how wide
    as RegNetY, Radosavovic et al. 2020, §5.3): the mean over all N' tokens, two 1×1 convolutions with biases to r·d (of
    the block's input) and back, and a sigmoid that multiplies every token. That mixes globally, content-dependent.

    `spatial` puts another mixer in place of the 3×3, w wide: its rows are called `spatial_…`.
    """

    width: Width | None = None
    """Inner width w; d'/`expansion` by default."""
    expansion: Annotated[Width | None, Letter(None)] = None
    """Output width over inner width, d'/w; 4 by default, where `width` is not given either."""
    stride_on: Literal["1x1", "3x3"] = "3x3"
    """Which convolution has the stride: the 3×3 (the later version) or the first 1×1 (the paper's)."""
    groups: Annotated[Width | None, Letter("h")] = None
    """Number of groups g of the 3×3 convolution; 1 by default."""
    group_width: Annotated[Width | None, Letter("dₖ")] = None
    """Channels per group, w/g, in place of `groups`."""
    squeeze: Squeeze | None = None
    """Ratio r of squeeze-and-excitation, r·d hidden units (Hu et al. 2018); none by default."""
    spatial: LocalAttention | LocalRelation | None = None
    """A mechanism in place of the 3×3 convolution; the block sets its stride."""

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

    def squeezed(self, place: Place) -> Number:
        """r·d, as a whole number."""
        return squeezed_width(self.squeeze or 0, place.dim)

    def inside(self, place: Place) -> Place:
        """The place after conv1."""
        width = self.inner(place)
        return msgspec.structs.replace(place, grid=strided_grid(place.grid, self.strides[0]), dim=width, out_dim=width)

    def kernels(self, grid: Grid) -> Sequence[Kernel]:
        return pointwise_kernel(grid, self.strides[0]), kernel_of_three(grid, self.strides[1])

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        first = pointwise_kernel(grid, self.strides[0])
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

    def operations(self, place: Place) -> Iterator[Operation]:
        inner_place, (grid, _), width = self.inside(place), self.out(place), self.inner(place)
        kernel = pointwise_kernel(grid)
        yield from convolution_and_norm(
            ("conv1", "norm1"),
            "1×1 convolution",
            kernel,
            inner_place.grid,
            place.dim,
            width,
            inputs=place.grid,
            raw_input=True,
        )
        yield elementwise("act1", "Activation", "relu", inner_place.grid.tokens * width)
        yield from self._mixing(place)
        yield elementwise("act2", "Activation", "relu", grid.tokens * width)
        if self.squeeze is not None:
            yield from squeeze_rows(grid, width, self.squeezed(place), "relu", "act2")
        yield from convolution_and_norm(("conv3", "norm3"), "1×1 convolution", kernel, grid, width, place.out_dim)
        yield from self.residual_end(place, "norm3", "act3")

    def _mixing(self, place: Place) -> Iterator[Operation]:
        """The 3×3 convolution or its replacement, and the norm."""
        inner_place, (grid, _), width = self.inside(place), self.out(place), self.inner(place)
        groups = self.grouped(place)
        title = "3×3 convolution" if groups == 1 else "Grouped 3×3 convolution"
        conv, norm_row = convolution_and_norm(
            ("conv2", "norm2"), title, kernel_of_three(grid), grid, width, width, groups, inputs=inner_place.grid
        )
        if self.spatial is None:
            yield conv
        else:
            for spatial_row in self.spatial_mixer.operations(inner_place):
                row = channels_first(within(spatial_row, "spatial_", "act1"), "act1", inner_place.grid.tokens, width)
                # what comes into it has passed conv1
                yield msgspec.structs.replace(row, symbol=None, takes_input=None)
        yield norm_row

    def notes(self, place: Place) -> Iterator[str]:
        if self.spatial is not None:
            yield from self.spatial_mixer.notes(self.inside(place))
        if self.stride > 1 and self.stride_on == "1x1":
            unread = place.grid.tokens - strided_grid(place.grid, self.stride).tokens
            yield (
                f"stride {self.stride} on the first 1×1 convolution: {unread} of {place.grid.tokens} positions are "
                "read by nothing"
            )
