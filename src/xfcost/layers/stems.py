"""Stems and stage transitions: patches, convolutions, pools, merging, up-sampling, concatenation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Embed,
    Enter,
    Grid,
    Letter,
    NormKind,
    Number,
    Operation,
    PaddingNote,
    Place,
    Side,
    Sources,
    Takes,
    Width,
    itself,
)
from xfcost.formulas.conv_kernel import (
    Kernel,
    Paddings,
    Sides,
    check_mean_pool,
    kernel_in_letters,
    kernel_of,
    pooling,
    unread_note,
)
from xfcost.formulas.letters import patches_in_letters
from xfcost.formulas.rows import convolution, elementwise, linear, move, norm
from xfcost.formulas.tensors import copied
from xfcost.ledger.errors import divisors_text
from xfcost.ledger.grid import sides_text
from xfcost.ledger.tensors import BEFORE, INPUT, MEMORY, OUTPUT, Tensor, Tensors


class Patch(Embed, frozen=True, kw_only=True, tag="patch"):
    """A P×P convolution of stride P (Dosovitskiy et al. 2021, §3.1; Liu et al. 2021, §3.1).

    projection   N·(P²·C)·d MACs, P²·C·d + d parameters, N = (H/P)·(W/P) tokens, C channels
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image",)

    size: Annotated[Side, Letter("P", least=2)]
    """Side P of a patch, in pixels."""
    norm: NormKind = "none"
    """Norm after the projection."""
    bias: bool = True
    """Whether the projection has a bias."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(side * self.size for side in sides)

    def check(self, place: Place) -> None:
        bad = [side for side in place.grid.sides if side % self.size]
        if bad:
            below = [max(side // self.size, 1) * self.size for side in place.grid.sides]
            above = [ceil_div(side, self.size) * self.size for side in place.grid.sides]
            images = " or ".join(dict.fromkeys((sides_text(below), sides_text(above))))
            raise ComponentError(
                "size",
                f"{self.size} does not divide the image {sides_text(place.grid.sides)}; it could be "
                f"{divisors_text(gcd(*place.grid.sides))}, or the image {images}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(tuple(side // self.size for side in place.grid.sides)), place.out_dim

    def in_letters(self, place: Place) -> tuple[Patch, Place]:
        """N patches of side P."""
        component, lettered_place = super().in_letters(place)
        patches = patches_in_letters(self.size, self.size, place.grid, self.out(place)[0])
        return component, msgspec.structs.replace(lettered_place, grid=patches.grid)

    def sources(self, place: Place) -> Sources:
        rank = len(place.grid.sides)
        return Sources(kernel=Kernel((self.size,) * rank, (self.size,) * rank, (0,) * rank))

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = self.out(place)
        yield linear("projection", "Patch projection", grid.tokens, self.size**2 * place.dim, d, bias=self.bias)
        yield from norm(self.norm, "norm", grid.tokens, d)


class ConvEmbed(Embed, frozen=True, kw_only=True, tag="conv"):
    """A convolution, then a norm and an activation if any: a stem, an overlapping patch embedding, a down-sampling.

        conv   N'·k·(d/g)·d' MACs, N' output positions, k of the kernel, g groups
        norm   N'·d' elements
        act    N'·d' elements

    It may be the first step of `embed`, on pixels, or follow other layers, on a grid of one, two or three axes.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image", "video", "embedded")

    size: Annotated[Sides, Letter("W", least=2)]
    """Kernel size W, one number for all axes or one per axis."""
    stride: Annotated[Sides, Letter(None)] = 1
    """Stride, one number for all axes or one per axis."""
    padding: Annotated[Paddings | None, Letter(None)] = None
    """Padding on both sides of every axis; by default half the kernel, and none where kernels do not overlap."""
    channels: Width | None = None
    """Output channels d'; the stage's width by default."""
    groups: Annotated[Width, Letter(None)] = 1
    """Number of channel groups g."""
    bias: bool = True
    """Whether the convolution has a bias."""
    norm: NormKind = "none"
    """Norm after the convolution."""
    act: ActKind | Literal["none"] = "none"
    """Activation function after the norm."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_of(Grid(sides), self.size, self.stride, self.padding).input_sides(sides)

    def kernel(self, place: Place) -> Kernel:
        """The kernel on the place's grid."""
        return kernel_of(place.grid, self.size, self.stride, self.padding)

    def check(self, place: Place) -> None:
        self.kernel(place).check(place.grid)
        for name, width in (("width", place.dim), ("channels", self.out(place)[1])):
            if width % self.groups:
                raise ComponentError("groups", f"{self.groups} does not divide the {name} {width}")

    def out(self, place: Place) -> tuple[Grid, Number]:
        width = place.out_dim if self.channels is None else self.channels
        return Grid(self.kernel(place).out(place.grid.sides)), width

    def in_letters(self, place: Place) -> tuple[ConvEmbed, Place]:
        return kernel_in_letters(*super().in_letters(place), self.kernel(place), place.grid, self.out(place)[0])

    def sources(self, place: Place) -> Sources:
        return Sources(kernel=self.kernel(place))

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, width = self.out(place)
        kernel = self.kernel(place)
        yield convolution(
            "conv",
            "Convolution" if self.groups == 1 else "Grouped convolution",
            inputs=place.grid.tokens,
            outputs=grid.tokens,
            kernel=kernel.sides,
            width=place.dim,
            out_width=width,
            groups=self.groups,
            bias=self.bias,
            overlaps=kernel.overlaps,
        )
        yield from norm(self.norm, "norm", grid.tokens, width)
        if self.act != "none":
            yield elementwise("act", "Activation", self.act, grid.tokens * width)

    def notes(self, place: Place) -> Iterator[str]:
        yield from unread_note(self.kernel(place), place.grid)


class Pool(Embed, frozen=True, kw_only=True, tag="pool"):
    """The maximum or the mean of `size` neighbours, every `stride` of them: static local mixing, no parameters.

    Per position that leaves, k comparisons (max) or additions (mean), k the kernel's positions, padding included.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image", "video", "embedded")

    form: Literal["max", "mean"] = "max"
    """Whether the maximum or the mean of a window is taken."""
    size: Annotated[Sides, Letter("W", least=2)] = 2
    """Window size W, one number for all axes or one per axis."""
    stride: Annotated[Sides, Letter(None)] = 2
    """Stride, one number for all axes or one per axis."""
    padding: Annotated[Paddings | None, Letter(None)] = None
    """Padding on both sides of every axis; by default half the window, and none where windows do not overlap."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return kernel_of(Grid(sides), self.size, self.stride, self.padding).input_sides(sides)

    def kernel(self, place: Place) -> Kernel:
        """The kernel on the place's grid."""
        return kernel_of(place.grid, self.size, self.stride, self.padding)

    def check(self, place: Place) -> None:
        kernel = self.kernel(place)
        kernel.check(place.grid)
        if any(2 * padding > side for side, padding in zip(kernel.sides, kernel.padding, strict=True)):
            raise ComponentError("padding", f"expected at most half the kernel {sides_text(kernel.sides)}")
        if self.form == "mean":
            check_mean_pool(kernel, place.grid)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(self.kernel(place).out(place.grid.sides)), place.dim

    def in_letters(self, place: Place) -> tuple[Pool, Place]:
        return kernel_in_letters(*super().in_letters(place), self.kernel(place), place.grid, self.out(place)[0])

    def sources(self, place: Place) -> Sources:
        return Sources(kernel=self.kernel(place))

    def operations(self, place: Place) -> Iterator[Operation]:
        read, written = (grid.tokens * place.dim for grid in (place.grid, self.out(place)[0]))
        yield pooling("pool", self.form, self.kernel(place), written, read)

    def notes(self, place: Place) -> Iterator[str]:
        yield from unread_note(self.kernel(place), place.grid)


class PatchMerging(Enter, frozen=True, kw_only=True, tag="patch_merging"):
    """2×2 neighbours are concatenated (4d), normalised and reduced to the stage's width (Liu et al. 2021, §3.1).

        norm        ⌈N/4⌉·4d elements, 8d parameters
        reduction   ⌈N/4⌉·4d·d' MACs, 4d·d' parameters, no bias

    With `norm: post` (Swin V2; Liu et al. 2022) they are reduced, then normalised: ⌈N/4⌉·d' elements, 2d' parameters.

    Odd sides are padded by one, as in the public implementation. Groups are disjoint and become new tokens: per-token.
    """

    norm: Literal["pre", "post"] = "pre"
    """Whether the norm stands before the reduction (`pre`, Swin) or after it (`post`, Swin V2)."""

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(2 * side for side in sides)

    def check(self, place: Place) -> None:
        if len(place.grid.sides) != 2 or place.grid.special:  # noqa: PLR2004 - height and width
            raise ComponentError(
                "kind", f"'patch_merging' needs a 2-D grid without special tokens, not {place.grid.shape_text()}"
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(tuple(ceil_div(side, 2) for side in place.grid.sides)), place.out_dim

    def sources(self, place: Place) -> Sources:
        rank = len(place.grid.sides)
        return Sources(kernel=Kernel((2,) * rank, (2,) * rank, (0,) * rank))

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, d = self.out(place)
        padded = 4 * grid.tokens * place.dim if any(side % 2 for side in place.grid.sides) else 0
        gathered = copied((place.grid.tokens, place.dim), (grid.tokens, 4 * place.dim))
        yield move("gather", "Gather 2×2 neighbours", padded, tensors=gathered)
        normed = [*norm("layer_norm", "norm", grid.tokens, d if self.norm == "post" else 4 * place.dim)]
        reduction = linear("reduction", "Patch merging reduction", grid.tokens, 4 * place.dim, d, bias=False)
        yield from [reduction, *normed] if self.norm == "post" else [*normed, reduction]

    def notes(self, place: Place) -> Iterator[str]:
        if any(side % 2 for side in place.grid.sides):
            sides, merged = sides_text(place.grid.sides), sides_text(self.out(place)[0].sides)
            yield PaddingNote(f"odd grid {sides} padded by one row or column to merge into {merged}")


class Upsample(Enter, frozen=True, kw_only=True, tag="upsample"):
    """Tokens repeated `factor` times in place, cut to the length N of an earlier stage, whose output is added.

    The first step of the Funnel Transformer's decoder (Dai et al. 2020, §2.3), from P to N tokens. A separate [CLS] is
    not repeated, and zeros fill positions that the pooling dropped. P·factor·d and N·d elements are written, N·d
    are added.
    """

    factor: Annotated[Side, Letter(None)]
    """How many times each token is repeated."""
    skip: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = 1
    """Number of the earlier stage whose output is added; 1 is the first."""
    separate_cls: bool = True
    """Whether the first token is [CLS], which is not repeated."""

    @property
    def reads_stage(self) -> int | None:
        return self.skip

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("skip", f"{self.skip} is not an earlier stage")
        if (len(place.grid.sides), place.grid.special) != (1, 0):
            raise ComponentError(
                "kind", f"'upsample' needs a sequence without special tokens, got {place.grid.shape_text()} tokens"
            )
        if place.memory_dim != place.dim:
            raise ComponentError("skip", f"stage {self.skip} is {place.memory_dim} wide and this one {place.dim}")
        if place.grid.total * self.factor < place.memory.total:
            raise ComponentError(
                "factor",
                f"{place.grid.total} tokens {self.factor} times over are fewer than stage {self.skip}'s "
                f"{place.memory.total}; expected at least {-(-place.memory.total // place.grid.total)}",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.memory or place.grid, place.dim

    def sources(self, place: Place) -> Sources:
        first, pooled = 1 if self.separate_cls else 0, place.grid.total

        def repeated(token: int) -> Sequence[int]:
            read = token if token < first else first + (token - first) // self.factor
            return (read,) if read < pooled else ()

        return Sources(repeated, memory=itself)

    def operations(self, place: Place) -> Iterator[Operation]:
        skip_tokens, d = (place.memory or place.grid).total, place.dim
        separate = 1 if self.separate_cls else 0
        repeated = (place.grid.total - separate) * self.factor * d
        moved = repeated + separate * skip_tokens * d
        tensors = copied((place.grid.total, d), (skip_tokens, d))
        yield move("repeat", f"Repeat tokens {self.factor} times", moved, tensors=tensors)
        yield elementwise("add", f"Add stage {self.skip}", "add", skip_tokens * d, of=(BEFORE, MEMORY))


class Concatenate(Enter, frozen=True, kw_only=True, tag="concatenate"):
    """[y, x]: the output y of an earlier stage, of the same grid, before x (Mehta and Rastegari 2022, figure 1b).

    Widths d' and d become d' + d: N·(d' + d) elements are written. A convolution behind it fuses the two.
    """

    stage: Annotated[int, msgspec.Meta(ge=1, le=2**16)]
    """Number of the earlier stage whose output is concatenated; 1 is the first."""

    @property
    def reads_stage(self) -> int | None:
        return self.stage

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError("stage", f"{self.stage} is not an earlier stage")
        if place.memory != place.grid:
            raise ComponentError(
                "stage",
                f"stage {self.stage} leaves {place.memory.shape_text()} tokens, and the input has "
                f"{place.grid.shape_text()}; expected a stage with the same grid",
            )

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.memory_dim + place.dim

    def sources(self, place: Place) -> Sources:
        return Sources(memory=itself)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, width = place.grid.total, place.memory_dim + place.dim
        both = (Tensor(MEMORY, (n, place.memory_dim)), Tensor(INPUT, (n, place.dim)))
        tensors = Tensors(both, (Tensor(OUTPUT, (n, width)),))
        yield move("concatenate", f"Beside the output of stage {self.stage}", n * width, tensors=tensors)
