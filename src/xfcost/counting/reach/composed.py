"""How far information travels in an architecture, composed from what each of its parts reads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, Final, Literal, TypeVar

import msgspec

from xfcost.counting.reach.reached import DependenceSets, PartReads, TooManyTokens, along_axes, part_reads, read_sets
from xfcost.counting.reach.result import BlockReach, InputGrid, Reach, ReachStep, reach_of
from xfcost.formulas.component import Grid, Mixer, itself, tag_of
from xfcost.formulas.grid_axes import numbers, position
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Architecture, Part, Stage, Stream
from xfcost.spec.checks import is_reversible
from xfcost.spec.grammar import ImageInput, VideoInput, grid_of
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# How often an input is halved until its sets fit.
_MOST_HALVINGS: Final = 12
_T = TypeVar("_T")
# What each token depends on, of each stream's input.
States = dict[str, DependenceSets]


def reach(system: Architecture | Loaded, run: Run | None = None, token: Sequence[int] | None = None) -> Reach:
    """After each block: how many input tokens can influence a token; and the block at which all have met.

    Composed from what every operation reads, exactly, as sets: intervals or bits, along each axis of a grid where the
    pattern is one of each axis. A token's own input counts. The unit is a token of the first stage; where the stem
    mixes (overlapping convolutions), a pixel.

    Args:
        system: an architecture; or a spec, whose input is halved until the sets fit into memory, which a note says.
        run: of a spec, the size of its input.
        token: the place whose `maps` are drawn, in units of the last stream's input; the middle by default.

    Raises:
        UsageError: there is no such place; the sets of an architecture don't fit.
    """
    if isinstance(system, Architecture):
        return _reach(system, token, ())
    run = run or Run()
    for halved in range(_MOST_HALVINGS):
        architecture = place(system, run._replace(scale=(run.scale[0], run.scale[1] << halved)))
        try:
            notes = [f"reduced: the input's sides are 1/{1 << halved} of what was asked for"] if halved else []
            return _reach(architecture, token, notes)
        except TooManyTokens as error:
            refused = error
    raise refused


def _reach(architecture: Architecture, token: Sequence[int] | None, notes: Sequence[str]) -> Reach:
    walk = Walk(architecture)
    causal = [name_of(stream) for stream in architecture.streams if _is_causal(stream)]
    last = name_of(architecture.streams[-1])
    found = reach_of(architecture.spec.name, walk.inputs, walk.steps(), causal, last, token)
    return msgspec.structs.replace(
        found,
        receptive_field=receptive_field(architecture),
        notes=tuple(dict.fromkeys((*notes, *_notes(architecture)))),
    )


def _is_causal(stream: Stream) -> bool:
    """Does no mixing layer read later tokens of its own stream?"""
    mixers = [
        part.component
        for part in stream.parts()
        if isinstance(part.component, Mixer) and part.component.sources(part.place).own is not itself
    ]
    return bool(mixers) and all(mixer.causality != "none" for mixer in mixers)


def _notes(architecture: Architecture) -> Iterator[str]:
    """What it leaves out, or takes at its largest: choices by content, competition, earlier segments."""
    for part, *_ in architecture.parts():
        component = part.component
        if isinstance(component, Mixer):
            name = component.label()
            if component.content_selects_tokens:
                yield f"{name}: content selects the tokens that are read; all that it can select are counted"
            if component.causality == "approximate":
                yield f"{name}: later tokens affect which tokens are read; that dependence is not counted"
            if getattr(component, "past", 0):
                yield f"{name}: it also reads earlier segments, which are not counted"
        if component.tokens_compete:
            yield "experts with a capacity: that a token takes another's slot is not counted"
        if part.residual != "none" and part.residual.norm == "group_norm":
            yield "a group norm's mean and variance are over all tokens: through it every token depends on all"


class Walk:
    """An architecture from its input to its last block; what a kind of part reads is worked out once."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.inputs: dict[str, InputGrid] = {}
        self._numbers = dict.fromkeys(map(name_of, architecture.streams), 0)
        self._memory: States = {}
        self._made: dict[tuple[str, str], Any] = {}

    def steps(self) -> Iterator[ReachStep]:
        """After the stem where it mixes, a stage's entry, or a block, stream by stream."""
        for stream in self.architecture.streams:
            states, grid = yield from self._stem(stream)
            earlier: list[States] = []
            for stage in stream.stages:
                states, grid = yield from self._stage(stage, name_of(stream), states, grid, earlier)
                earlier.append(states)
            self._memory = states

    def _stem(self, stream: Stream) -> Generator[ReachStep, None, tuple[States, Grid]]:
        """The embedding layers. The units are the tokens that the first of them makes which no other one mixes."""
        name, grid = name_of(stream), grid_of(stream.input)
        state, mixed = DependenceSets.identity(grid.sides), False
        for part in stream.embed:
            reading = part_reads(part)
            mixed = mixed or not reading.groups
            if not mixed and reading.out.sides != grid.sides:
                state = DependenceSets.identity(reading.out.sides)
            else:
                state = self._own(state, part, reading)
            grid = reading.out
        is_pixel = isinstance(stream.input, ImageInput | VideoInput) and state.units == stream.input.sides
        unit: Literal["token", "pixel"] = "pixel" if is_pixel else "token"
        self.inputs[name] = InputGrid(name=name, sides=state.units, unit=unit, read=state.met_by_any())
        if mixed:
            block = _block(stream.embed, name, f"{stream.path}embed", stream.name or "", "stem", grid)
            yield ReachStep(block, grid, {name: state})
        return {name: state}, grid

    def _stage(
        self, stage: Stage, name: str, states: States, grid: Grid, earlier: Sequence[States]
    ) -> Generator[ReachStep, None, tuple[States, Grid]]:
        """The entry of a stage, and its blocks."""
        for part in stage.enter:
            number = part.component.reads_stage
            states = self._part(states, part, earlier[number - 1] if number else {})
            grid = part.component.out(part.place)[0]
        if stage.enter:
            yield ReachStep(_block(stage.enter, name, f"{stage.path}.enter", stage.label, "enter", grid), grid, states)
        one = two = states  # the two streams of a reversible stage; of another, the same
        settled: set[int] = set()  # blocks that add nothing to these
        for number, index in enumerate(stage.order, 1):
            block = stage.blocks[index]
            if index not in settled:
                before = (one, two)
                for part in block.parts:
                    if is_reversible(part.residual):
                        one, two = two, _joined(one, self._part(two, part, self._memory))
                    else:
                        one = two = self._part(one, part, self._memory)
                if (one, two) == before:
                    one, two = before
                    settled.add(index)
                else:
                    settled.clear()
            if block.parts:
                grid = block.parts[-1].component.out(block.parts[-1].place)[0]
            if not all(part.component.only_norm for part in block.parts):  # a last norm is no block
                self._numbers[name] += 1
                step = _block(block.parts, name, block.path, stage.label, f"block {number}", grid)
                step = msgspec.structs.replace(step, number=self._numbers[name])
                yield ReachStep(step, grid, _joined(one, two))
        return _joined(one, two), grid

    def _part(self, states: States, part: Part, memory: States) -> States:
        """After a part; `memory` is what the tokens outside its own stream have met that it reads."""
        reading = part_reads(part)
        found = {name: self._own(state, part, reading) for name, state in states.items()}
        reads, tokens = reading.reads.memory, reading.out.total
        if reads is not None and memory:
            relation = self._once("memory", part, lambda: read_sets(map(reads, range(tokens))))
            read = {
                name: DependenceSets.full(tokens, state.units) if state.is_full() else state.of_tokens(relation)
                for name, state in memory.items()
            }
            found = _joined(found, read)
        return found

    def _own(self, state: DependenceSets, part: Part, reading: PartReads) -> DependenceSets:
        grid, out, own = reading.grid, reading.out, reading.reads.own
        if own is itself:
            more = out.special - grid.special  # new special tokens, which have met nothing
            return state.of_tokens(read_sets([*[()] * more, *map(itself, range(grid.total))])) if more else state
        if state.is_full() and len(own(0)) and len(own(out.total - 1)):
            return DependenceSets.full(out.total, state.units)
        if reading.reads.whole and state.met_by_any() == prod(state.units):
            return DependenceSets.full(out.total, state.units)
        pattern = self._once("axes", part, partial(along_axes, reading))
        if pattern is None:
            return state.of_tokens(self._once("own", part, reading.read_sets))
        if tuple(axis.rows for axis in state.axes) == grid.sides:
            return state.of_places(pattern)
        special = self._once("special", part, lambda: read_sets(map(own, range(out.special))))
        return state.beside_special(grid, pattern, special)

    def _once(self, which: str, part: Part, made: Callable[[], _T]) -> _T:
        """What was made of an equal part before, else made now."""
        key = (which, repr((part.component, part.place.grid, part.place.memory, part.residual)))
        if key not in self._made:
            self._made[key] = made()
        found: _T = self._made[key]
        return found


def _block(parts: Sequence[Part], stream: str, path: str, group: str, name: str, grid: Grid) -> BlockReach:
    mixers = [part for part in parts if isinstance(part.component, Mixer)]
    kinds = [part.component.label() for part in mixers if isinstance(part.component, Mixer)]
    rows = [row for part in mixers for row in component_rows(part.component, part.place)]
    return BlockReach(
        path=path,
        group=group,
        part=name,
        kinds=tuple(dict.fromkeys(kinds or [tag_of(type(part.component)).replace("_", " ") for part in parts])),
        stream=stream,
        number=None,
        tokens=grid.total,
        sequential=max((row.sequential for row in rows), default=1),
    )


def name_of(stream: Stream) -> str:
    """The name of its input."""
    return stream.name or "input"


def _joined(one: States, two: States) -> States:
    if one is two:
        return one
    return one | {name: one[name].joined(state) if name in one else state for name, state in two.items()}


# The receptive field, where no border cuts it off ─────────────────────────────────────────────────────────────────────


# Sides of the grids on which a part is looked at, the first that its pattern fits into.
_SIDES: Final = {1: (64, 1024, 16384), 2: (32, 128), 3: (16, 32)}
# AxisReads each axis, how many places an output's reading spans, and by how many it moves to the next output.
Extent = tuple[tuple[int, ...], tuple[int, ...]]


def receptive_field(architecture: Architecture) -> tuple[int, ...] | None:
    """The sides of what a place of the last stage depends on, in units of the stem's first mixing layer.

    None where a part reads all tokens, or by the place of a token (windows), or another stream's.
    """
    if len(architecture.streams) > 1:
        return None
    stream = architecture.streams[0]
    parts = list(stream.embed)
    for stage in stream.stages:
        parts += [*stage.enter, *(part for index in stage.order for part in stage.blocks[index].parts)]
    rank = len(stream.input.sides)
    field, jump, mixed = (1,) * rank, (1,) * rank, False
    for part in parts:
        reading = part_reads(part)
        ranks = {len(reading.grid.sides), len(reading.out.sides)}
        if reading.reads.memory is not None or reading.grid.special or ranks != {rank}:
            return None
        if reading.reads.own is itself:
            continue
        found = _extent(part, reading)
        if found is None:
            return None
        if not mixed and reading.groups:  # the units are what leaves it
            continue
        mixed = True
        field = tuple(side + (more - 1) * step for side, more, step in zip(field, found[0], jump, strict=True))
        jump = tuple(step * by for step, by in zip(jump, found[1], strict=True))
    return field if mixed else None


def _extent(part: Part, reading: PartReads) -> Extent | None:
    if reading.reads.kernel is not None:
        return reading.reads.kernel.sides, reading.reads.kernel.stride
    if reading.reads.products:
        return None
    rank = len(reading.grid.sides)
    places = (msgspec.structs.replace(part.place, grid=Grid((side,) * rank)) for side in _SIDES[rank])
    return next(filter(None, (_spans(part_reads(part._replace(place=place))) for place in places)), None)


def _spans(reading: PartReads) -> Extent | None:
    """Of outputs in the middle of the grid; None where a border cuts any off, or where they aren't alike."""
    sides, out = reading.grid.sides, reading.out.sides
    stride = tuple(-(-side // outputs) for side, outputs in zip(sides, out, strict=True))
    centre = [side // 2 for side in out]
    spans = set()
    for axis in range(len(out)):
        for by in range(4):
            at = [*centre[:axis], centre[axis] + by, *centre[axis + 1 :]]
            output = numbers([[place] for place in at], out)[0]
            read = zip(*(position(token, sides) for token in reading.reads.own(output)), strict=True)
            ends = [(min(places), max(places)) for places in read]
            if any(low == 0 or high == side - 1 for (low, high), side in zip(ends, sides, strict=True)):
                return None
            moved = [step * place for step, place in zip(stride, at, strict=True)]
            spans.add(tuple((low - shift, high - shift) for (low, high), shift in zip(ends, moved, strict=True)))
    return (tuple(high - low + 1 for low, high in spans.pop()), stride) if len(spans) == 1 else None
