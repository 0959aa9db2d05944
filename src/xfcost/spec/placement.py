"""A checked spec becomes an `Architecture`: every component at its place (grid, width, what it reads)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost.formulas.component import Component, Joining, Mixer, Place, Residual, SubLayer, tag_of
from xfcost.ledger.errors import ComponentError, SpecError, UsageError, combined
from xfcost.ledger.execution import Mode
from xfcost.ledger.grid import Grid, sides_text
from xfcost.ledger.ledger import beyond_positions
from xfcost.ledger.lora import ALL, Lora
from xfcost.program.residual import TwoStreams, component_rows
from xfcost.spec.architecture import (
    PROMPTED,
    Architecture,
    Block,
    BlockOrder,
    Part,
    Stage,
    Stream,
    labels,
    schedule,
    widens,
)
from xfcost.spec.checks import (
    check_block,
    check_continuing,
    check_decoding,
    check_pooled,
    check_reading,
    check_residual,
    check_starts,
    check_sum,
    is_reversible,
    logits_of,
)
from xfcost.spec.grammar import AnyInput, StageSpec, StreamSpec, TokenInput, grid_of
from xfcost.spec.inputs import Inputs, streams_of
from xfcost.spec.overrides import kinds_that_it_changes
from xfcost.spec.reader import Source, YamlPath
from xfcost.spec.run import (
    Chosen,
    Run,
    cache_of,
    check_prefix,
    chosen_for,
    is_language_model,
    tensors_of,
    weights_of,
)

if TYPE_CHECKING:
    from xfcost.spec.load import Loaded


class ComponentPlacer:
    """Places the components of one spec in one run."""

    def __init__(self, source: Source, run: Run, *, fused: bool) -> None:
        self.source, self.run = source, run
        self.fused = fused
        """Is attention one fused kernel?"""
        self.tables: dict[str, tuple[int, int]] = {}
        """Shared tables: name -> (rows, columns)."""
        self.bound_tables: set[str] = set()
        """Shared tables whose shapes depend on the input size."""
        self._table_paths: dict[str, YamlPath] = {}
        self.encoder_output: tuple[Grid, int] | None = None
        """Grid and width that the decoder's cross-attention reads."""
        self.errors: list[SpecError] = []
        """Misplaced sub-layers, reported together."""

    def part(self, path: YamlPath, component: Component, place: Place, residual: Joining = "none") -> Part:
        """The component at its place.

        Raises:
            SpecError: it can't be there, or another component shares a table in another shape.
        """
        if self.run.lora is not None:
            in_block, mixes = isinstance(component, SubLayer), isinstance(component, Mixer)
            lora = self.run.lora.within(mixes=mixes) if in_block else self.run.lora.frozen
            place = msgspec.structs.replace(place, lora=lora)
        try:
            component.check(place)
            if self.run.mode == "decode" and path[0] != "encoder":
                check_decoding(component, place, residual)
            if self.run.cached_prefix and self.run.mode in PROMPTED:
                check_continuing(component, place, residual)
        except ComponentError as error:
            raise self.source.error((*path, error.field), error.message, error.fits) from None
        for name, shape in component.tables(place).items():
            first_shape = self.tables.setdefault(name, shape)
            first_path = self._table_paths.setdefault(name, path)
            if first_shape != shape:
                raise self.source.error(
                    (*path, "share"),
                    f"the table {name!r} is {sides_text(first_shape)} at {self.source.where(first_path)} and "
                    f"{sides_text(shape)} here; shared tables must agree",
                )
            if component.binds_tables:
                self.bound_tables.add(name)
        return Part(".".join(map(str, path)), component, place, residual)

    def sublayer(self, path: YamlPath, component: SubLayer, place: Place, residual: Joining) -> Part | None:
        """The sub-layer at its place; None where it can't be there and the error is reported with later ones.

        Raises:
            SpecError: it can't be there, and no sub-layer behind it can be checked.
        """
        decoder = path[0] == "decoder"
        memory, memory_dim = self.encoder_output if decoder and self.encoder_output else (None, None)
        place = msgspec.structs.replace(place, memory=memory, memory_dim=memory_dim, fused=self.fused)
        own_residual = component.residual if component.residual is not None else residual
        try:
            part = self.part(path, component.with_stream_defaults(decoder=decoder), place, own_residual)
        except SpecError as error:
            if not self._next_is_checkable(component):
                raise
            self.errors.append(error)
            return None
        check_sum(path, part, self.source)
        return part

    def _next_is_checkable(self, component: SubLayer) -> bool:
        """Can the sub-layers behind a misplaced one still be checked? At the spec's own size, if it keeps the shape."""
        own_size = self.run.tokens is None and self.run.size is None and self.run.scale == (1, 1)
        return own_size and self.run.mode != "decode" and type(component).out is SubLayer.out and not component.widens


Shape = tuple[Grid, int]
"""The tokens between two blocks: their grid and width."""


class BlockPlacer:
    """Places the blocks of one stage. A block that repeats with another grid or width is another block."""

    def __init__(self, components: ComponentPlacer, path: YamlPath, stage: StageSpec, residual: Joining) -> None:
        self._components, self._residual, self._dim = components, residual, stage.dim
        self._written, self._order = schedule(path, stage, components.source)
        self._labels = labels(self._written)
        self._numbers: dict[tuple[int, Grid, int], int] = {}
        self._variants: Counter[int] = Counter()
        self._blocks: list[Block] = []
        self._outputs: list[Shape] = []

    def place(self, entering: Shape) -> tuple[tuple[Block, ...], BlockOrder, Shape]:
        """The distinct blocks, their order, and the shape that leaves the last one."""
        order, leaving = self._order.mapped(entering, self._block)
        times = order.counts()
        blocks = tuple(msgspec.structs.replace(block, times=times[number]) for number, block in enumerate(self._blocks))
        return blocks, order, leaving

    def _block(self, index: int, shape: Shape) -> tuple[int, Shape]:
        """The number of the written block `index` where tokens of this shape enter, and the shape that leaves it."""
        key = (index, *shape)
        if key not in self._numbers:
            self._numbers[key] = len(self._blocks)
            self._variants[index] += 1
            suffix = f"@{self._variants[index]}" if self._variants[index] > 1 else ""
            path, components = self._written[index]
            parts, leaving = self._sublayers(path, components, shape, suffix)
            self._blocks.append(Block(".".join(map(str, path)) + suffix, self._labels[index] + suffix, parts, 0))
            self._outputs.append(leaving)
        number = self._numbers[key]
        return number, self._outputs[number]

    def _sublayers(
        self, path: YamlPath, components: list[Any], shape: Shape, suffix: str
    ) -> tuple[tuple[Part, ...], Shape]:
        place = Place(grid=shape[0], dim=shape[1], out_dim=self._dim)
        parts = []
        for number, component in enumerate(components):
            if component.special_tokens_only and not self._components.run.extra_tokens:
                continue
            part = self._components.sublayer((*path, number), component, place, self._residual)
            if part is None:
                continue
            grid, dim = part.component.out(part.place)
            place = msgspec.structs.replace(place, grid=grid, dim=dim)
            parts.append(part._replace(path=".".join(map(str, (*path[:-1], f"{path[-1]}{suffix}", number)))))
        if not self._components.errors:
            check_block(path, parts, self._residual, self._components.source)
        return tuple(parts), (place.grid, place.dim)


def _adapters(parts: Iterable[Part]) -> list[str]:
    """The names of the adapters of parts, in their order."""
    rows = (row for part in parts for row in component_rows(part.component, part.place, part.residual))
    first = (row.path.removesuffix("_a") for row in rows if row.adapter and row.path.endswith("_a"))
    names = (path.rpartition("lora_")[2] for path in first)
    return [*dict.fromkeys(names)]


# Modes that run one forward over all tokens and compute all logits, as published figures mean it.
_PUBLISHED: Final[frozenset[Mode]] = frozenset(("forward", "train"))


def place(loaded: Loaded, run: Run) -> Architecture:
    """Every component of the spec at its place.

    Raises:
        SpecError: a component can't be where it is written; with file and line.
        UsageError: the spec can't have the input size of `run`.
    """
    placement = Placement(loaded, run, chosen_for([loaded.spec], run))
    try:
        return placement.architecture()
    except SpecError as error:
        raise combined([*placement.components.errors, error]) from None


class Placement:
    """The steps that place a spec in one run."""

    def __init__(self, loaded: Loaded, run: Run, chosen: Chosen) -> None:
        self.loaded, self.spec, self.source, self.run = loaded, loaded.spec, loaded.source, run
        self.chosen = chosen
        self.components = ComponentPlacer(loaded.source, run, fused=chosen.attention == "fused")

    def architecture(self) -> Architecture:
        spec, run = self.spec, self.run
        given = list(streams_of(self.loaded, run))
        if run.cached_prefix and run.mode in PROMPTED and len(given) > 1:
            raise self._no_prefix()
        streams = [self._stream(path, stream, number) for number, (path, stream) in enumerate(given)]
        if self.components.errors:
            raise combined(self.components.errors)
        if run.lora is not None:
            self._check_adapters(run.lora, [part for stream in streams for part in stream.parts()])
        parts = (part for stage in streams[-1].stages for block in stage.blocks for part in block.parts)
        check_reading(spec, self.source, (part.component for part in parts))
        check_starts(streams, self.source)
        last = streams[-1]
        layers = (*last.embed, *(part for stage in last.stages for part in stage.enter))
        written = ((getattr(spec, stream.name).input if stream.name else None) or spec.input for stream in streams)
        own_size = all(own.sides == stream.input.sides for own, stream in zip(written, streams, strict=True))
        settings = self.loaded.settings
        weight_format, warnings = weights_of(run, self.loaded.weights)
        positions = self._positions(last)
        return Architecture(
            spec=spec,
            source=self.loaded.name,
            streams=tuple(streams),
            head=self.head(last.input, [part.component for part in layers], last.stages[-1].leaves),
            tables=self.components.tables,
            bound_tables=frozenset(self.components.bound_tables),
            batch=run.batch,
            **self.chosen._asdict(),
            mode=run.mode,
            cached_prefix=self._cached(last),
            weight_format=weight_format,
            checkpoint=tensors_of(self.loaded.weights),
            positions=positions,
            warnings=(*self.loaded.remarks, *self._widely_set(), *warnings, *self._beyond(positions, last)),
            cache_format=cache_of(run, self.loaded.weights),
            memory_level=run.memory_level,
            lora=run.lora,
            settings=settings,
            own_size=own_size,
            as_written=own_size and not settings and run.batch == 1 and run.mode in _PUBLISHED and run.lora is None,
        )

    def _widely_set(self) -> Iterator[str]:
        """What a setting of any level changes, where that is more than one kind: `**.size` is of patches too."""
        for setting in self.loaded.settings:
            kinds = kinds_that_it_changes(self.loaded.data, setting)
            if len(kinds) > 1:
                yield f"{setting} changes {', '.join(f'{kind} ({number}×)' for kind, number in kinds.items())}"

    def _check_adapters(self, lora: Lora, parts: Sequence[Part]) -> None:
        """Check that every name of the adapters is that of a linear map.

        Raises:
            UsageError: one is not; with the names that there are.
        """
        if not (missing := lora.without_map(_adapters(parts))):
            return
        everywhere = Lora(lora.rank, (ALL,))
        blocks = [part for part in parts if isinstance(part.component, SubLayer)]
        others = [part._replace(place=msgspec.structs.replace(part.place, lora=everywhere)) for part in blocks]
        names = _adapters(others)
        if not names:
            raise UsageError(f"--lora {lora.rank}: {self.spec.name} has no linear maps in its blocks; leave it out")
        raise UsageError(
            f"--lora-on {','.join(missing)}: no linear map of {self.spec.name} has that name; expected some of "
            f"{', '.join(names)}, or all"
        )

    def _cached(self, stream: Stream) -> int:
        """The tokens of the cached prefix in its run.

        Raises:
            UsageError: it is no part of a prompt.
        """
        run = self.run
        if not run.cached_prefix or run.mode not in PROMPTED:
            return 0
        if not isinstance(stream.input, TokenInput):
            raise self._no_prefix()
        check_prefix(run.cached_prefix, stream.input.length)
        return run.cached_prefix

    def _no_prefix(self) -> UsageError:
        return UsageError(
            f"--cached-prefix {self.run.cached_prefix}: {self.spec.name} is no decoder of tokens alone, whose prompts "
            "can begin alike; leave it out"
        )

    def _positions(self, stream: Stream) -> int | None:
        """The positions that a language model states, which may be its own `length`; None of models without them.

        A recurrence has none, nor has an attention with biases of distances alone.
        """
        stated, most = self.loaded.data.get("input"), self.loaded.positions
        blocks = (block for stage in stream.stages for block in stage.blocks)
        parts = (*stream.embed, *(part for block in blocks for part in block.parts))
        placed = any(
            getattr(part.component, "position", None) == "rope"
            or getattr(part.component, "rope_dim", None) is not None
            or (tag_of(type(part.component)) == "position" and getattr(part.component, "form", "") != "sinusoidal")
            for part in parts
        )
        if most is None and placed and isinstance(stated, dict) and is_language_model(self.spec):
            most = stated.get("positions") or stated.get("length")
        return most if isinstance(stream.input, TokenInput) else None

    def _beyond(self, positions: int | None, stream: Stream) -> tuple[str, ...]:
        """A warning where it is given more tokens than that."""
        if positions is None or not isinstance(stream.input, TokenInput):
            return ()
        return beyond_positions(stream.input.length + self.run.new_tokens - 1, positions)

    def _stream(self, path: YamlPath, stream: StreamSpec, number: int) -> Stream:
        entry, embed, shape = self.stem(path, stream, number)
        stages: list[Stage] = []
        shapes: list[Shape] = []
        for index, stage in enumerate(stream.stages):
            label = self._label(path, index, len(stream.stages))
            placed, shape = self.stage((*path, "stages", index), label, stage, shape, shapes)
            stages.append(placed)
            shapes.append(shape)
        self.components.encoder_output = shape
        return Stream("".join(f"{step}." for step in path), entry, tuple(embed), tuple(stages))

    def stem(self, path: YamlPath, stream: StreamSpec, number: int) -> tuple[AnyInput, list[Part], Shape]:
        """The input of stream `number` in its size, its embedding layers, and the shape that leaves them."""
        entry = Inputs(self.loaded, self.run).sized(number, path, stream)
        vocabulary = entry.vocabulary if isinstance(entry, TokenInput) else None
        width = entry.vocabulary if isinstance(entry, TokenInput) else entry.channels
        entrance = Place(grid=grid_of(entry), dim=width, out_dim=stream.stages[0].dim, vocabulary=vocabulary)
        return entry, *self._layers((*path, "embed"), stream.embed, entrance, [])

    def _layers(
        self, path: YamlPath, layers: list[Any], entrance: Place, earlier: list[Shape]
    ) -> tuple[list[Part], Shape]:
        """The layers of a stem or a stage entry, the first at `entrance`; and the shape that leaves the last one.

        `earlier` are the shapes that leave the stages before, which a layer may read.
        """
        parts = []
        grid, dim = entrance.grid, entrance.dim
        for index, layer in enumerate(layers):
            position = msgspec.structs.replace(entrance, grid=grid, dim=dim, fused=self.components.fused)
            if layer.reads_stage and layer.reads_stage <= len(earlier):
                memory, memory_dim = earlier[layer.reads_stage - 1]
                position = msgspec.structs.replace(position, memory=memory, memory_dim=memory_dim, memory_letter="N")
            if not self.run.extra_tokens and layer.out(position)[0].special > grid.special:
                continue
            parts.append(self.components.part((*path, index), layer, position))
            grid, dim = layer.out(position)
        return parts, (grid, dim)

    @staticmethod
    def _label(stream: YamlPath, index: int, stages: int) -> str:
        """`stage 2`; `encoder`, or `encoder stage 2` of several."""
        numbered = stages > 1 or not stream
        return " ".join([*map(str, stream), *([f"stage {index + 1}"] if numbered else [])])

    def stage(
        self, path: YamlPath, label: str, stage: StageSpec, shape: Shape, earlier: list[Shape]
    ) -> tuple[Stage, Shape]:
        """A stage that tokens of a shape enter, and the shape that leaves it; `earlier` are those of the others."""
        enter, (grid, entering) = self.entry(path, stage, shape, earlier)
        residual = self.residual(path, stage)
        blocks, order, leaving = BlockPlacer(self.components, path, stage, residual).place((grid, entering))
        end = self._reversible_end(path, residual, leaving, len(order))
        if end:
            leaving = end.component.out(end.place)
        if entering != stage.dim != leaving[1]:
            raise self.source.error(
                (*path, "dim"), f"the stage's blocks bring the width {entering} to {leaving[1]}, not to {stage.dim}"
            )
        text = ".".join(map(str, path))
        return Stage(text, label, stage.dim, grid, tuple(enter), blocks, order, end), leaving

    def entry(self, path: YamlPath, stage: StageSpec, shape: Shape, earlier: list[Shape]) -> tuple[list[Part], Shape]:
        """The layers before a stage's first block, and the shape that leaves them."""
        entrance = Place(grid=shape[0], dim=shape[1], out_dim=stage.dim)
        enter, (grid, entering) = self._layers((*path, "enter"), stage.enter, entrance, earlier)
        if entering != stage.dim and not widens(path, stage, self.source):
            key = "embed" if path[-1] == 0 else "enter"
            raise self.source.error(
                (*path, "dim"), f"the width is {entering} here and nothing in `{key}` brings it to {stage.dim}"
            )
        return enter, (grid, entering)

    def residual(self, path: YamlPath, stage: StageSpec) -> Joining:
        """The residual of a stage's sub-layers: its own, or the spec's."""
        residual = self.spec.residual if stage.residual is None else stage.residual
        check_residual((*(() if stage.residual is None else path), "residual"), residual, self.source)
        return residual

    def _reversible_end(self, path: YamlPath, residual: Joining, shape: Shape, blocks: int) -> Part | None:
        """The layer that joins the two streams of a reversible stage; None of any other stage."""
        if not (isinstance(residual, Residual) and is_reversible(residual)):
            return None
        grid, dim = shape
        joining = TwoStreams(join=residual.join or "concatenate", blocks=blocks)
        return self.components.part((*path, "residual"), joining, Place(grid=grid, dim=dim, out_dim=dim))

    def head(self, entry: AnyInput, layers: Sequence[Component], shape: Shape) -> Part | None:
        """The head on tokens of a shape, in a stream with this input and these `layers` before its blocks."""
        head = self.spec.head
        logits = logits_of(self.spec, self.source, self.run.mode, self.run.logits)
        if head is None:
            return None
        if self.run.extra_tokens:
            check_pooled(self.spec, self.source, layers)
        else:
            head = head.without_extra_tokens()
        grid, dim = shape
        vocabulary = entry.vocabulary if isinstance(entry, TokenInput) else None
        position = Place(grid=grid, dim=dim, out_dim=dim, vocabulary=vocabulary, logits=logits)
        return self.components.part(("head",), head, position)
