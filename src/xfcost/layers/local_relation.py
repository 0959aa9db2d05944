"""A local relation layer as an embedding layer: LR-Net's stem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from xfcost.formulas.component import (
    ActKind,
    Embed,
    Grid,
    Letter,
    NormKind,
    Number,
    Place,
    Side,
    Sources,
    Width,
)
from xfcost.mechanisms.local_attention import LocalRelation, WindowSide
from xfcost.program.operations import Operations
from xfcost.program.symbolic import Tensor
from xfcost.program.tape import Program


class LocalRelationEmbed(Program, Embed, frozen=True, kw_only=True, tag="local_relation"):
    """The mixer `local_relation`, then a norm and an activation if any: LR-Net's stem (Hu et al. 2019, §4).

    norm   N'·d elements, 2d parameters (an RMS norm d parameters), where there is a norm
    act    N'·d elements, where there is an activation

    N' tokens of width d leave. It follows a layer with the stage's width, and has the mixer's fields.
    """

    size: Annotated[WindowSide, Letter("W")] = 7
    """Side W of the window around a position, odd."""
    share: Annotated[Width, Letter("dₖ")] = 8
    """Channels m that share one aggregation weight."""
    stride: Annotated[Side, Letter(None)] = 1
    """Stride s along every axis."""
    norm: NormKind = "none"
    """Norm after the layer."""
    act: ActKind | Literal["none"] = "none"
    """Activation function after the norm."""

    @property
    def layer(self) -> LocalRelation:
        """The mixer that it runs."""
        return LocalRelation(size=self.size, share=self.share, stride=self.stride)

    def input_sides(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(side * self.stride for side in sides)

    has_windows: ClassVar[bool] = True

    def check(self, place: Place) -> None:
        self.layer.check(place)

    def out(self, place: Place) -> tuple[Grid, Number]:
        return self.layer.out(place)

    def sources(self, place: Place) -> Sources:
        return self.layer.sources(place)

    titles: ClassVar[Mapping[str, str]] = LocalRelation.titles

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        x = self.layer.forward(t, x, place)
        return t.act("act", t.norm("norm", x, self.norm), self.act)

    def notes(self, place: Place) -> Iterator[str]:
        return self.layer.notes(place)
