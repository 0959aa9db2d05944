"""The walk: a checked spec becomes an `Architecture`, every component at its place (grid, width, memory)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from xfcost.formulas.component import Component, Joining, Place, Residual, SubLayer
from xfcost.formulas.layer import Enter, Head
from xfcost.formulas.residual import TwoStreams
from xfcost.ledger.errors import ComponentError, SpecError, UsageError, combined
from xfcost.ledger.grid import Grid, sides_text
from xfcost.ledger.options import Execution, Logits, Mode
from xfcost.ledger.training import Plan
from xfcost.spec.architecture import Architecture, Block, Part, Stage, Stream
from xfcost.spec.checks import (
    check_decoding,
    check_entrance,
    check_pooled,
    check_reading,
    check_starts,
    check_streams,
    check_sum,
    logits_of,
)
from xfcost.spec.grammar import AnyInput, ImageInput, StageSpec, StreamSpec, TokenInput, VideoInput
from xfcost.spec.inputs import Inputs
from xfcost.spec.order import Order
from xfcost.spec.reader import YamlPath
from xfcost.spec.reversible import check_block, check_residual, is_reversible
from xfcost.spec.schedule import labels, schedule, widens

if TYPE_CHECKING:
    from xfcost.spec.load import Loaded

# Modes whose counts are those of one forward over all tokens, logits of all of them included, as papers mean it.
_PRINTED: Final[frozenset[Mode]] = frozenset(("forward", "train"))


class Run(NamedTuple):
    """What is asked of a spec beside the spec itself."""

    tokens: tuple[int, ...] | None = None
    """N of the first stage (one number per stream, or one for all); the spec's own input where it is None."""
    size: tuple[int, int] | None = None
    """Height and width of the image, or of a video's frames, in place of `tokens`."""
    batch: int = 1
    dtype: str = "float32"
    attention: Execution = "eager"
    scale: tuple[int, int] = (1, 1)
    """The sides of every input (or of its folded grid), multiplied by a fraction: how costs grow from here."""
    memory_level: int | None = None
    """Bytes of on-chip memory for which the main-memory traffic of attention is told."""
    mode: Mode = "forward"
    new_tokens: int = 1
    """m, in the mode `generate`."""
    logits: Logits | None = None
    """Of a prompt (`prefill`, `generate`): the positions whose logits are computed; None is the last."""
    plan: Plan | None = None
    """What a run of training is to be, where `mode` is that."""
    extra_tokens: bool = True
    """False leaves out [CLS] and its like, and what works on them alone, to compare score counts on the grid alone."""


def place(loaded: Loaded, run: Run) -> Architecture:
    """Every component of the spec at its place.

    Raises:
        SpecError: a component can't stand where it does; with file and line.
        UsageError: `run.tokens` can't be honoured.
    """
    return _Walk(loaded, run).architecture()


def input_for(loaded: Loaded, run: Run, sides: tuple[int, int]) -> tuple[int, ...]:
    """Height and width of the (first) stream's input of which its first stage gets a grid of `sides`.

    Raises:
        UsageError: the input has no height and width.
    """
    walk = _Walk(loaded, run)
    path, stream = walk.streams()[0]
    entry = stream.input or loaded.spec.input
    if not isinstance(entry, ImageInput | VideoInput):
        raise walk.inputs.no_size(entry)
    if any(component.folds for component in stream.embed):
        raise UsageError(f"--size: {loaded.spec.name} keeps one side of its image, folded into the width; give --N")
    steps = walk.inputs.steps(path, stream, entry)
    return walk.inputs.input_sides(path, stream, sides if steps is None else (steps, *sides))[-2:]


def time_steps(loaded: Loaded) -> int:
    """The time steps of the first stage's grid, which N is a multiple of; 1 where the input is no video."""
    walk = _Walk(loaded, Run())
    path, stream = walk.streams()[0]
    return walk.inputs.steps(path, stream, stream.input or loaded.spec.input) or 1


def takes_images(loaded: Loaded) -> bool:
    """Is its input an image of any height and width, neither of them folded away?"""
    return isinstance(loaded.spec.input, ImageInput) and not any(component.folds for component in loaded.spec.embed)


class _Walk:
    def __init__(self, loaded: Loaded, run: Run) -> None:
        self.spec, self.source, self.run = loaded.spec, loaded.source, run
        self.inputs = Inputs(loaded.spec.name, loaded.source, run)
        self.name, self.settings = loaded.name, loaded.settings
        self.tables: dict[str, tuple[int, int]] = {}
        self.bound_tables: set[str] = set()
        self.tables_from: dict[str, YamlPath] = {}
        self.memory: tuple[Grid, int] | None = None
        self.out: tuple[Grid, int] = (Grid((1,)), 1)
        self.earlier: list[tuple[Grid, int]] = []
        self.problems: list[SpecError] = []

    def architecture(self) -> Architecture:
        try:
            return self._architecture()
        except SpecError as error:
            raise combined([*self.problems, error]) from None

    def _architecture(self) -> Architecture:
        spec = self.spec
        streams = [self._stream(path, stream, number) for number, (path, stream) in enumerate(self.streams())]
        if self.problems:
            raise combined(self.problems)
        parts = (part for stage in streams[-1].stages for block in stage.blocks for part in block.parts)
        check_reading(spec, self.source, (part.component for part in parts if isinstance(part.component, SubLayer)))
        check_starts(streams, self.source)
        own_size = all(self._is_own(stream) for stream in streams)
        return Architecture(
            spec=spec,
            source=self.name,
            streams=tuple(streams),
            head=self._head(streams[-1]),
            tables=self.tables,
            bound_tables=frozenset(self.bound_tables),
            batch=self.run.batch,
            dtype=self.run.dtype,
            attention=self.run.attention,
            mode=self.run.mode,
            memory_level=self.run.memory_level,
            settings=self.settings,
            own_size=own_size,
            as_written=own_size and not self.settings and self.run.batch == 1 and self.run.mode in _PRINTED,
        )

    def streams(self) -> list[tuple[YamlPath, StreamSpec]]:
        """The encoder and the decoder; or the one stream that the spec itself is, each with a way in for its input."""
        spec = self.spec
        check_streams(spec, self.source, self.run.tokens)
        named: list[tuple[YamlPath, StreamSpec]] = [
            ((name,), stream) for name in ("encoder", "decoder") if (stream := getattr(spec, name))
        ]
        streams = named or [((), StreamSpec(embed=spec.embed, stages=spec.stages or []))]
        for path, stream in streams:
            check_entrance((*path, "embed"), stream.embed, stream.input or spec.input, self.source)
        return streams

    def _is_own(self, stream: Stream) -> bool:
        """Is the stream's input the size that the spec gives?"""
        name = stream.path.rstrip(".")
        own = (getattr(self.spec, name).input if name else None) or self.spec.input
        return own.sides == stream.input.sides

    def _stream(self, path: YamlPath, stream: StreamSpec, number: int) -> Stream:
        entry = self._input(path, stream, number)
        vocabulary = entry.vocabulary if isinstance(entry, TokenInput) else None
        grid, dim = Grid(entry.sides), entry.width
        embed, grid, dim = self._entry((*path, "embed"), stream.embed, grid, dim, stream.stages[0].dim, vocabulary)
        stages, self.earlier = [], []
        for index, stage in enumerate(stream.stages):
            built, grid, dim = self._stage((*path, "stages", index), stage, grid, dim, len(stream.stages))
            stages.append(built)
            self.earlier.append((grid, dim))
        self.memory = self.out = (grid, dim)
        return Stream("".join(f"{step}." for step in path), entry, tuple(embed), tuple(stages))

    def _input(self, path: YamlPath, stream: StreamSpec, number: int) -> AnyInput:
        tokens = self.run.tokens[number if len(self.run.tokens) > 1 else 0] if self.run.tokens else None
        return self.inputs.sized(path, stream, stream.input or self.spec.input, tokens)

    def _entry(
        self, path: YamlPath, components: list[Any], grid: Grid, dim: int, out_dim: int, vocabulary: int | None
    ) -> tuple[list[Part], Grid, int]:
        parts = []
        for index, component in enumerate(components):
            spot = Place(grid=grid, dim=dim, out_dim=out_dim, vocabulary=vocabulary, fused=self._fused)
            if isinstance(component, Enter) and component.reads_stage and component.reads_stage <= len(self.earlier):
                there, width = self.earlier[component.reads_stage - 1]
                spot = msgspec.structs.replace(spot, memory=there, memory_dim=width, memory_letter="N")
            if not self.run.extra_tokens and component.out(spot)[0].extra > grid.extra:
                continue
            parts.append(self._part((*path, index), component, spot))
            grid, dim = component.out(spot)
        return parts, grid, dim

    @property
    def _fused(self) -> bool:
        return self.run.attention == "fused"

    def _part(self, path: YamlPath, component: Component, spot: Place, residual: Joining = "none") -> Part:
        try:
            component.check(spot)
            if self.run.mode == "decode" and path[0] != "encoder":
                check_decoding(component, spot, residual)
        except ComponentError as error:
            raise self.source.error((*path, error.field), error.message) from None
        for name, shape in component.tables(spot).items():
            if self.tables.setdefault(name, shape) != shape:
                known, got = sides_text(self.tables[name]), sides_text(shape)
                where = self.source.where(self.tables_from[name])
                raise self.source.error(
                    (*path, "share"),
                    f"the table {name!r} is {known} at {where} and {got} here; shared tables must agree",
                )
            self.tables_from.setdefault(name, path)
            if component.binds_tables:
                self.bound_tables.add(name)
        return Part(".".join(str(step) for step in path), component, spot, residual)

    def _stage(self, path: YamlPath, stage: StageSpec, grid: Grid, dim: int, count: int) -> tuple[Stage, Grid, int]:
        enter, grid, dim = self._entry((*path, "enter"), stage.enter, grid, dim, stage.dim, None)
        if dim != stage.dim and not widens(path, stage, self.source):
            key = "embed" if path[-1] == 0 else "enter"
            raise self.source.error(
                (*path, "dim"), f"the width is {dim} here and nothing in `{key}` brings it to {stage.dim}"
            )
        stream = path[0] if path[0] != "stages" else ""
        label = " ".join(
            str(word) for word in (stream, f"stage {int(path[-1]) + 1}" if count > 1 or not stream else "") if word
        )
        entrance, entering = grid, dim
        residual = stage.residual if stage.residual is not None else self.spec.residual
        check_residual((*(path if stage.residual is not None else ()), "residual"), residual, self.source)
        blocks, order, grid, dim = self._blocks(path, stage, grid, dim, residual)
        exit_ = self._exit(path, residual, Place(grid=grid, dim=dim, out_dim=dim), len(order))
        if exit_:
            grid, dim = exit_.component.out(exit_.place)
        if entering != stage.dim != dim:
            raise self.source.error(
                (*path, "dim"), f"the stage's blocks bring the width {entering} to {dim}, not to {stage.dim}"
            )
        text = ".".join(str(step) for step in path)
        return Stage(text, label, stage.dim, entrance, tuple(enter), blocks, order, exit_), grid, dim

    def _exit(self, path: YamlPath, residual: Joining, spot: Place, blocks: int) -> Part | None:
        if not (isinstance(residual, Residual) and is_reversible(residual)):
            return None
        return self._part((*path, "residual"), TwoStreams(join=residual.join or "concatenate", blocks=blocks), spot)

    def _blocks(
        self, path: YamlPath, stage: StageSpec, grid: Grid, dim: int, residual: Joining
    ) -> tuple[tuple[Block, ...], Order, Grid, int]:
        """The blocks in their order. A block that finds another grid or width when it comes again is another block."""
        written, planned = schedule(path, stage, self.source)
        names = labels(written)
        placed: dict[tuple[int, Grid, int], int] = {}
        again: Counter[int] = Counter()
        blocks: list[Block] = []
        outs: list[tuple[Grid, int]] = []

        def run(index: int, state: tuple[Grid, int]) -> tuple[int, tuple[Grid, int]]:
            key = (index, *state)
            if key not in placed:
                placed[key] = len(blocks)
                again[index] += 1
                suffix = f"@{again[index]}" if again[index] > 1 else ""
                block_path, components = written[index]
                spot = Place(grid=state[0], dim=state[1], out_dim=stage.dim)
                parts, out = self._sublayers(block_path, components, spot, residual, suffix)
                text = ".".join(str(step) for step in block_path) + suffix
                blocks.append(Block(text, names[index] + suffix, parts, 0))
                outs.append(out)
            return placed[key], outs[placed[key]]

        order, (grid, dim) = planned.walked((grid, dim), run)
        times = order.counts()
        return tuple(block._replace(times=times[at]) for at, block in enumerate(blocks)), order, grid, dim

    def _sublayers(
        self, path: YamlPath, components: list[Any], spot: Place, residual: Joining, suffix: str
    ) -> tuple[tuple[Part, ...], tuple[Grid, int]]:
        parts = []
        for number, component in enumerate(components):
            if component.special_tokens_only and not self.run.extra_tokens:
                continue
            part = self._sublayer((*path, number), component, spot, residual)
            if part is None:
                continue
            grid, dim = part.component.out(part.place)
            spot = msgspec.structs.replace(spot, grid=grid, dim=dim)
            words = [*(str(step) for step in path[:-1]), f"{path[-1]}{suffix}", str(number)]
            parts.append(part._replace(path=".".join(words)))
        if not self.problems:
            check_block(path, parts, residual, self.source)
        return tuple(parts), (spot.grid, spot.dim)

    def _sublayer(self, path: YamlPath, component: SubLayer, spot: Place, residual: Joining) -> Part | None:
        """The part; or nothing, where it can't stand there, which is kept to be told with what else is wrong."""
        decoder = path[0] == "decoder"
        memory, memory_dim = self.memory if decoder and self.memory else (None, None)
        spot = msgspec.structs.replace(spot, memory=memory, memory_dim=memory_dim, fused=self._fused)
        joining = component.residual if component.residual is not None else residual
        try:
            part = self._part(path, component.with_stream_defaults(decoder=decoder), spot, joining)
        except SpecError as error:
            if not self._goes_on(component):
                raise
            self.problems.append(error)
            return None
        check_sum(path, part, self.source)
        return part

    def _goes_on(self, component: SubLayer) -> bool:
        """Can what stands behind a misplaced component still be checked? At the spec's own size."""
        own = self.run.tokens is None and self.run.size is None and self.run.scale == (1, 1)
        return own and self.run.mode != "decode" and type(component).out is SubLayer.out and not component.widens

    def _head(self, stream: Stream) -> Part | None:
        logits = logits_of(self.spec, self.source, self.run.mode, self.run.logits)
        if self.spec.head is None:
            return None
        grid, dim = self.out
        vocabulary = stream.input.vocabulary if isinstance(stream.input, TokenInput) else None
        layers = (*stream.embed, *(part for stage in stream.stages for part in stage.enter))
        if self.run.extra_tokens:
            check_pooled(self.spec, self.source, (part.component for part in layers))
        head: Head = self.spec.head if self.run.extra_tokens else self.spec.head.without_extra_tokens()
        spot = Place(grid=grid, dim=dim, out_dim=dim, vocabulary=vocabulary, logits=logits)
        return self._part(("head",), head, spot)
