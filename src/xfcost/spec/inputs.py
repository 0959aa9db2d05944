"""The streams of a spec and the size of their inputs: the spec's own, or as `--N`, `--size` or a scale gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from xfcost.formulas.component import Component, Place, tag_of
from xfcost.ledger.errors import ComponentError, UsageError
from xfcost.ledger.grid import Grid, check_tokens, image_sides, largest_map, video_sides
from xfcost.spec.checks import check_entrance, check_streams
from xfcost.spec.grammar import AnyInput, FeatureMapsInput, ImageInput, StreamSpec, VideoInput, height_and_width
from xfcost.spec.reader import YamlPath
from xfcost.spec.run import Run

if TYPE_CHECKING:
    from xfcost.spec.load import Loaded


def streams_of(loaded: Loaded, run: Run) -> list[tuple[YamlPath, StreamSpec]]:
    """The encoder and the decoder, or the one stream that the spec itself is, with their paths.

    Raises:
        SpecError: the spec gives streams in two ways or in none, or a first layer doesn't take the stream's input.
        UsageError: `run.tokens` are too many.
    """
    spec = loaded.spec
    check_streams(spec, loaded.source, run.tokens)
    named: list[tuple[YamlPath, StreamSpec]] = [
        ((name,), stream) for name in ("encoder", "decoder") if (stream := getattr(spec, name))
    ]
    streams = named or [((), StreamSpec(embed=spec.embed, stages=spec.stages or []))]
    for path, stream in streams:
        check_entrance((*path, "embed"), stream.embed, stream.input or spec.input, loaded.source)
    return streams


def sized_inputs(loaded: Loaded, run: Run) -> tuple[AnyInput, ...]:
    """The inputs of all streams in the sizes of `run`.

    Raises:
        XfcostError: the spec can't have them.
    """
    inputs = Inputs(loaded, run)
    return tuple(inputs.sized(number, *stream) for number, stream in enumerate(streams_of(loaded, run)))


def image_size_for_grid(loaded: Loaded, run: Run, sides: tuple[int, int]) -> tuple[int, ...]:
    """Height and width of the (first) input with which the first stage gets a grid of `sides`.

    Raises:
        UsageError: the input has no height and width.
    """
    path, stream = streams_of(loaded, run)[0]
    inputs = Inputs(loaded, run)
    entry = inputs.own(stream)
    if not isinstance(entry, ImageInput | VideoInput):
        raise inputs.no_size(entry)
    if any(layer.folds for layer in stream.embed):
        raise UsageError(f"--size: {loaded.spec.name} keeps one side of its image, folded into the width; give --N")
    steps = inputs.time_steps(path, stream, entry)
    return inputs.input_sides(path, stream, sides if steps is None else (steps, *sides))[-2:]


def time_steps(loaded: Loaded) -> int:
    """What N of a square grid is a multiple of: time steps of a video, 1 + 4 + … + 4^(L-1) of L feature maps; or 1."""
    path, stream = streams_of(loaded, Run())[0]
    inputs = Inputs(loaded, Run())
    entry = inputs.own(stream)
    if isinstance(entry, FeatureMapsInput):
        return int((4**entry.levels - 1) // 3)
    return inputs.time_steps(path, stream, entry) or 1


def takes_images(loaded: Loaded) -> bool:
    """Is its input an image of any height and width, neither of them folded into the width?"""
    return isinstance(loaded.spec.input, ImageInput) and not any(layer.folds for layer in loaded.spec.embed)


class Inputs(NamedTuple):
    """The inputs of one spec's streams in one run."""

    loaded: Loaded
    run: Run

    def own(self, stream: StreamSpec) -> AnyInput:
        """The input of a stream as the spec gives it."""
        return stream.input or self.loaded.spec.input

    def sized(self, number: int, path: YamlPath, stream: StreamSpec) -> AnyInput:
        """The input of stream `number` in the size of this run.

        Raises:
            UsageError: it can't have that size.
        """
        entry, run_tokens = self.own(stream), self.run.tokens
        tokens = run_tokens[number if len(run_tokens) > 1 else 0] if run_tokens else None
        if isinstance(entry, ImageInput | VideoInput):
            return self._pixels(path, stream, entry, tokens)
        if isinstance(entry, FeatureMapsInput):
            return self._maps(entry, tokens)
        if self.run.size is not None:
            raise self.no_size(entry)
        if tokens is not None:
            check_tokens(tokens)
        length = entry.length if tokens is None else tokens
        for _ in range(max((layer.axes for layer in stream.embed), default=1)):
            length = self._scaled(length)
        return msgspec.structs.replace(entry, length=length)

    def _pixels(
        self, path: YamlPath, stream: StreamSpec, entry: ImageInput | VideoInput, tokens: int | None
    ) -> ImageInput | VideoInput:
        """An image or a video. Axes that a layer folds into the width keep their size; so do frames, whatever N."""
        sides: tuple[int, ...] = entry.sides
        axes = len(sides) - sum(layer.folds for layer in stream.embed)
        if tokens is not None:
            grid = self._grid(tokens, axes, self.time_steps(path, stream, entry))
            entering = (*self.input_sides(path, stream, grid)[:axes], *sides[axes:])
            sides = (*sides[:-2], *entering[-2:])
        elif self.run.size is not None:
            sides = (*sides[:-2], *self.run.size)
        *frames, height, width = (self._scaled(side) if axis < axes else side for axis, side in enumerate(sides))
        return msgspec.structs.replace(entry, size=[height, width], **({"frames": frames[0]} if frames else {}))

    def _maps(self, entry: FeatureMapsInput, tokens: int | None) -> FeatureMapsInput:
        if self.run.size is not None:
            raise self.no_size(entry)
        size = height_and_width(entry.size) if tokens is None else largest_map(tokens, entry.levels)
        return msgspec.structs.replace(entry, size=[self._scaled(side) for side in size])

    def _grid(self, tokens: int, axes: int, steps: int | None) -> tuple[int, ...]:
        """The grid of `--N tokens`, of so many axes."""
        if steps is not None and axes > 2:  # noqa: PLR2004 - time, height and width
            return video_sides(tokens, steps)
        if steps is not None:
            name = self.loaded.spec.name
            raise UsageError(f"--N {tokens}: a layer of {name} folds an axis of the video; give --size")
        if axes > 1:
            return image_sides(tokens)
        check_tokens(tokens)
        return (tokens,)

    def no_size(self, entry: AnyInput) -> UsageError:
        """The error of `--size` where the input has no height and width."""
        name = self.loaded.spec.name
        if isinstance(entry, FeatureMapsInput):
            return UsageError(
                f"--size: {name} takes feature maps, not the image behind them; give --N, or --set input.size=[H,W]"
            )
        return UsageError(f"--size: {name} takes {tag_of(type(entry))}, which have no height and width; give --N")

    def input_sides(self, path: YamlPath, stream: StreamSpec, sides: tuple[int, ...]) -> tuple[int, ...]:
        """The sides of the input with which the first stage gets a grid of `sides`."""
        for layer_path, layer in reversed(_layers_before_blocks(path, stream)):
            try:
                sides = layer.input_sides(sides)
            except ComponentError as error:
                raise self.loaded.source.error((*layer_path, error.field), error.message) from None
        return sides

    def time_steps(self, path: YamlPath, stream: StreamSpec, entry: AnyInput) -> int | None:
        """The time steps that the first stage gets of a video's frames, whatever N; None without frames."""
        if not isinstance(entry, VideoInput):
            return None
        grid, dim = Grid(entry.sides), entry.channels
        for layer_path, layer in _layers_before_blocks(path, stream):
            try:
                place = Place(grid=grid, dim=dim, out_dim=stream.stages[0].dim)
                layer.check(place)
                grid, dim = layer.out(place)
            except ComponentError as error:
                raise self.loaded.source.error((*layer_path, error.field), error.message) from None
        return int(grid.sides[0])

    def _scaled(self, side: int) -> int:
        up, down = self.run.scale
        if side * up % down:
            raise UsageError(f"an input of {side} can't be made {up}/{down} as long")
        return side * up // down


def _layers_before_blocks(path: YamlPath, stream: StreamSpec) -> list[tuple[YamlPath, Component]]:
    """The layers before the first stage's blocks, in order, with their paths."""
    embed: list[tuple[YamlPath, Component]] = [
        ((*path, "embed", number), layer) for number, layer in enumerate(stream.embed)
    ]
    entry = stream.stages[0].enter
    return embed + [((*path, "stages", 0, "enter", number), layer) for number, layer in enumerate(entry)]
