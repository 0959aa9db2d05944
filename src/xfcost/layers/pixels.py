"""Pixels as tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xfcost.formulas.component import Operation, Place
from xfcost.formulas.layer import Embed, Takes
from xfcost.formulas.rows import move
from xfcost.formulas.tensors import view


class Pixels(Embed, frozen=True, kw_only=True, tag="pixels"):
    """Every pixel is a token as wide as the image has channels (Jaegle et al. 2021, §3.1): another layout, no work.

    Of a video, every pixel of every frame.
    """

    takes: ClassVar[tuple[Takes, ...]] = ("image", "video")

    def operations(self, place: Place) -> Iterator[Operation]:
        shape = (place.grid.total, place.dim)
        yield move("flatten", "Pixels as tokens", tensors=view(shape, shape))
