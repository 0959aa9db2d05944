"""An architecture from its input to its last block: what its tokens have met after each step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from math import prod
from typing import Literal, NamedTuple

from xfcost.counting.reach.reached import Along, Reached, pattern_of
from xfcost.counting.reach.reading import Reading, reading_of
from xfcost.counting.reach.result import BlockReach, InputGrid, met_of
from xfcost.counting.reach.sets import Relation, relation_of
from xfcost.formulas.component import Grid, Mixer, tag_of
from xfcost.formulas.recurrent import Recurrent
from xfcost.formulas.sources import itself
from xfcost.layers.norm import NormSubLayer
from xfcost.spec.architecture import Architecture, Part, Stage, Stream
from xfcost.spec.grammar import ImageInput, VideoInput, grid_of
from xfcost.spec.reversible import is_reversible

# What each token has met, of each stream's input.
States = dict[str, Reached]
# The stream of a step, its path, the stage's label, and what it is there.
_Where = tuple[str, str, str, str]


class Step(NamedTuple):
    """What the tokens have met after the stem, a stage's entry, or a block."""

    block: BlockReach
    grid: Grid
    states: States


class Walk:
    """Composes what the parts of an architecture read, each kind of part once."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.inputs: dict[str, InputGrid] = {}
        self.causal = {name_of(stream): _is_causal(stream) for stream in architecture.streams}
        self._blocks = dict.fromkeys(self.causal, 0)
        self._memory: States = {}
        self._patterns: dict[str, Along | Relation] = {}

    def steps(self) -> Iterator[Step]:
        """After each step, stream by stream."""
        for stream in self.architecture.streams:
            states, grid = yield from self._stem(stream)
            earlier: list[States] = []
            for stage in stream.stages:
                states, grid = yield from self._stage(stage, name_of(stream), states, grid, earlier)
                earlier.append(states)
            self._memory = states

    def _stem(self, stream: Stream) -> Generator[Step, None, tuple[States, Grid]]:
        """The embedding layers. The units are the tokens that the first of them makes which no other one mixes."""
        name, grid = name_of(stream), grid_of(stream.input)
        state, mixed = Reached.identity(grid.sides), False
        for part in stream.embed:
            reading = reading_of(part)
            mixed = mixed or not reading.groups
            if not mixed and reading.out.sides != grid.sides:
                state = Reached.identity(reading.out.sides)
            else:
                state = self._own(state, part, reading)
            grid = reading.out
        is_pixel = isinstance(stream.input, ImageInput | VideoInput) and state.units == stream.input.sides
        unit: Literal["token", "pixel"] = "pixel" if is_pixel else "token"
        self.inputs[name] = InputGrid(name=name, sides=state.units, unit=unit, read=state.met_by_any())
        if mixed:
            where = (name, f"{stream.path}embed", stream.name or "", "stem")
            yield self._step(where, stream.embed, grid, {name: state})
        return {name: state}, grid

    def _stage(
        self, stage: Stage, name: str, states: States, grid: Grid, earlier: Sequence[States]
    ) -> Generator[Step, None, tuple[States, Grid]]:
        """The entry of a stage, and its blocks."""
        for part in stage.enter:
            number = getattr(part.component, "reads_stage", None)
            states = self._part(states, part, earlier[number - 1] if number else {})
            grid = reading_of(part).out
        if stage.enter:
            yield self._step((name, f"{stage.path}.enter", stage.label, "enter"), stage.enter, grid, states)
        pair = (states, states)
        before: dict[int, tuple[tuple[States, States], tuple[States, States]]] = {}
        for number, index in enumerate(stage.order, 1):
            block = stage.blocks[index]
            if index not in before or before[index][0] is not pair:
                found = self._block(block.parts, pair)
                before[index] = (pair, pair if _same(found, pair) else found)
            pair = before[index][1]
            if block.parts:
                grid = block.parts[-1].component.out(block.parts[-1].place)[0]
            if not all(isinstance(part.component, NormSubLayer) for part in block.parts):  # a last norm is no block
                self._blocks[name] += 1
                where = (name, block.path, stage.label, f"block {number}")
                yield self._step(where, block.parts, grid, _joined(*pair), self._blocks[name])
        return _joined(*pair), grid

    def _block(self, parts: Sequence[Part], pair: tuple[States, States]) -> tuple[States, States]:
        """The two streams of a reversible block; of others, both the same."""
        one, two = pair
        if not any(is_reversible(part.residual) for part in parts):
            for part in parts:
                one = self._part(one, part, self._memory)
            return one, one
        for part in parts:
            one, two = two, _joined(one, self._part(two, part, self._memory))
        return one, two

    def _part(self, states: States, part: Part, memory: States) -> States:
        """After a part; `memory` is what the tokens have met that it reads beside its own stream's."""
        reading = reading_of(part)
        found = {name: self._own(state, part, reading) for name, state in states.items()}
        reads, tokens = reading.reads.memory, reading.out.total
        if reads is not None and memory:
            relation = self._pattern("memory", part, lambda: relation_of(map(reads, range(tokens))))
            read = {
                name: Reached.full(tokens, state.units) if state.is_full() else state.union(relation)
                for name, state in memory.items()
            }
            found = _joined(found, read)
        return found

    def _own(self, state: Reached, part: Part, reading: Reading) -> Reached:
        grid, out, own = reading.grid, reading.out, reading.reads.own
        if own is itself:
            more = out.special - grid.special  # new special tokens, which have met nothing
            return state.union(relation_of([*[()] * more, *map(itself, range(grid.total))])) if more else state
        if state.is_full() and len(own(0)) and len(own(out.total - 1)):
            return Reached.full(out.total, state.units)
        if reading.reads.whole and state.met_by_any() == prod(state.units):
            return Reached.full(out.total, state.units)
        return state.union(self._pattern("own", part, lambda: pattern_of(reading)))

    def _pattern(self, which: str, part: Part, made: Callable[[], Along | Relation]) -> Along | Relation:
        key = repr((which, part.component, part.place.grid, part.place.memory, part.residual))
        if key not in self._patterns:
            self._patterns[key] = made()
        return self._patterns[key]

    def _step(
        self, where: _Where, parts: Sequence[Part], grid: Grid, states: States, number: int | None = None
    ) -> Step:
        stream, path, group, name = where
        mixers = [part for part in parts if isinstance(part.component, Mixer)]
        kinds = [part.component.label() for part in mixers if isinstance(part.component, Mixer)]
        met = []
        for each in sorted(states, key=lambda name: name != stream):
            counts, state = states[each].counts(), states[each]
            causal = self.causal[stream] and each == stream
            own = state.own() if causal and len(counts) == self.inputs[each].units else 0
            met.append(met_of(self.inputs[each], counts, own, causal=causal))
        rows = [row for part in mixers for row in part.component.operations(part.place)]
        block = BlockReach(
            path=path,
            group=group,
            part=name,
            kinds=tuple(dict.fromkeys(kinds or [tag_of(type(part.component)).replace("_", " ") for part in parts])),
            stream=stream,
            number=number,
            tokens=grid.total,
            sequential=max((row.sequential for row in rows), default=1),
            met=tuple(met),
        )
        return Step(block, grid, states)


def name_of(stream: Stream) -> str:
    """The name of its input."""
    return stream.name or "input"


def _is_causal(stream: Stream) -> bool:
    """Does no mixing layer read later tokens of its own stream?"""
    mixers = [part.component for part in stream.parts() if isinstance(part.component, Mixer)]
    own = [mixer for mixer in mixers if isinstance(mixer, Recurrent) or not mixer.reads_memory]
    return bool(own) and all(mixer.causality != "none" for mixer in own)


def _joined(one: States, two: States) -> States:
    if one is two:
        return one
    return one | {name: one[name].joined(state) if name in one else state for name, state in two.items()}


def _same(found: tuple[States, States], before: tuple[States, States]) -> bool:
    """Has a block changed nothing?"""
    return all(
        mine.keys() == others.keys() and all(mine[name].equals(others[name]) for name in mine)
        for mine, others in zip(found, before, strict=True)
    )
