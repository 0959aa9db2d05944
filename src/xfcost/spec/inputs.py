"""How large an input is: as the spec says it, or as a run asks for tokens, for a size or for a scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from xfcost.formulas.component import Component, Place, tag_of
from xfcost.ledger.errors import ComponentError, UsageError
from xfcost.ledger.grid import Grid, check_tokens, image_sides, video_sides
from xfcost.spec.grammar import AnyInput, ImageInput, StreamSpec, VideoInput
from xfcost.spec.reader import Source, YamlPath

if TYPE_CHECKING:
    from xfcost.spec.walk import Run


class Inputs(NamedTuple):
    """The input of a stream of one spec, in one run."""

    name: str
    source: Source
    run: Run

    def sized(self, path: YamlPath, stream: StreamSpec, entry: AnyInput, tokens: int | None) -> AnyInput:
        """`entry` in the size that the run asks for, `tokens` being the N of its first stage.

        Raises:
            UsageError: it can't have that size.
        """
        if isinstance(entry, ImageInput | VideoInput):
            return self._pixels(path, stream, entry, tokens)
        if self.run.size is not None:
            raise self.no_size(entry)
        if tokens is not None:
            check_tokens(tokens)
        length = entry.length if tokens is None else tokens
        for _ in range(max((component.axes for component in stream.embed), default=1)):
            length = self._scaled(length)
        return msgspec.structs.replace(entry, length=length)

    def _pixels(
        self, path: YamlPath, stream: StreamSpec, entry: ImageInput | VideoInput, tokens: int | None
    ) -> ImageInput | VideoInput:
        """An image or a video; axes that a layer folds into the width stay, and so do a video's frames whatever N."""
        sides: tuple[int, ...] = entry.sides
        kept = len(sides) - sum(component.folds for component in stream.embed)
        if tokens is not None:
            grid = self._grid(tokens, kept, self.steps(path, stream, entry))
            found = (*self.input_sides(path, stream, grid)[:kept], *sides[kept:])
            sides = (*sides[:-2], *found[-2:])
        elif self.run.size is not None:
            sides = (*sides[:-2], *self.run.size)
        *frames, height, width = (self._scaled(side) if axis < kept else side for axis, side in enumerate(sides))
        return msgspec.structs.replace(entry, size=[height, width], **({"frames": frames[0]} if frames else {}))

    def _grid(self, tokens: int, axes: int, steps: int | None) -> tuple[int, ...]:
        """The grid of `--N tokens`, of so many axes."""
        if steps is not None and axes > 2:  # noqa: PLR2004 - time, height and width
            return video_sides(tokens, steps)
        if steps is not None:
            raise UsageError(f"--N {tokens}: a layer of {self.name} folds an axis of the video; give --size")
        if axes > 1:
            return image_sides(tokens)
        check_tokens(tokens)
        return (tokens,)

    def no_size(self, entry: AnyInput) -> UsageError:
        """What is said where `--size` is given and the input has none."""
        return UsageError(f"--size: {self.name} takes {tag_of(type(entry))}, which have no height and width; give --N")

    def input_sides(self, path: YamlPath, stream: StreamSpec, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The input of which the first stage gets `sides`."""
        for here, component in reversed(_before_blocks(path, stream)):
            try:
                sides = component.input_sides(sides)
            except ComponentError as error:
                raise self.source.error((*here, error.field), error.message) from None
        return sides

    def steps(self, path: YamlPath, stream: StreamSpec, entry: AnyInput) -> int | None:
        """The time steps that the first stage gets of a video's frames, which stay whatever N; None without frames."""
        if not isinstance(entry, VideoInput):
            return None
        grid, dim = Grid(entry.sides), entry.width
        for here, component in _before_blocks(path, stream):
            try:
                spot = Place(grid=grid, dim=dim, out_dim=stream.stages[0].dim)
                component.check(spot)
                grid, dim = component.out(spot)
            except ComponentError as error:
                raise self.source.error((*here, error.field), error.message) from None
        return int(grid.sides[0])

    def _scaled(self, side: int) -> int:
        up, down = self.run.scale
        if side * up % down:
            raise UsageError(f"an input of {side} can't be made {up}/{down} as long")
        return side * up // down


def _before_blocks(path: YamlPath, stream: StreamSpec) -> list[tuple[YamlPath, Component]]:
    """The layers before the first stage's blocks, in their order."""
    embed: list[tuple[YamlPath, Component]] = [
        ((*path, "embed", number), component) for number, component in enumerate(stream.embed)
    ]
    first = stream.stages[0].enter
    return embed + [((*path, "stages", 0, "enter", number), component) for number, component in enumerate(first)]
