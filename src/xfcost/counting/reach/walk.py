"""An architecture from its input to its last block: what its tokens have met after each step."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from xfcost.counting.reach.along import Along, along_axes
from xfcost.counting.reach.reached import Reached
from xfcost.counting.reach.reading import Reading, own_reads, reading_of
from xfcost.counting.reach.relation import Relation, relation_of
from xfcost.counting.reach.result import InputGrid
from xfcost.formulas.component import Grid, Mixer, tag_of
from xfcost.layers.norm import NormSubLayer
from xfcost.spec.architecture import Architecture, Part, Stage, Stream
from xfcost.spec.grammar import ImageInput, VideoInput, grid_of
from xfcost.spec.reversible import is_reversible

# What each token has met, of each stream's input.
States = dict[str, Reached]


class Step(NamedTuple):
    """What the tokens have met after the stem, a stage's entry, or a block."""

    path: str
    group: str
    """The stage's label."""
    part: str
    """`stem`, `enter`, `block 3`."""
    stream: str
    kinds: tuple[str, ...]
    """What mixes in it, else what it is made of."""
    grid: Grid
    states: States
    is_block: bool
    sequential: int
    """The most steps that one of its layers takes one after the other."""


class Walk:
    """Composes what the parts of an architecture read, each kind of part once."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.memory: States = {}
        self.inputs: dict[str, InputGrid] = {}
        self._relations: dict[str, Relation] = {}
        self._lines: dict[str, Along | None] = {}
        self._sequential: dict[int, int] = {}

    def steps(self) -> Iterator[Step]:
        """After each step, stream by stream."""
        for stream in self.architecture.streams:
            name = stream.name or "input"
            states, grid = yield from self._stem(stream, name)
            earlier: list[States] = []
            for stage in stream.stages:
                states, grid = yield from self._stage(stage, name, states, grid, earlier)
                earlier.append(states)
            self.memory = states

    def _stem(self, stream: Stream, name: str) -> Generator[Step, None, tuple[States, Grid]]:
        """The embedding layers. The units are the tokens that the first of them makes which no other one mixes."""
        grid = grid_of(stream.input)
        state = Reached.identity(grid.sides)
        mixed = False
        for part in stream.embed:
            reading = reading_of(part)
            mixed = mixed or not reading.groups
            if not mixed and reading.out.sides != grid.sides:
                state = Reached.identity(reading.out.sides)
            else:
                state = self._own(state, part, reading)
            grid = reading.out
        states = {name: state}
        is_pixel = isinstance(stream.input, ImageInput | VideoInput) and state.units == stream.input.sides
        unit: Literal["token", "pixel"] = "pixel" if is_pixel else "token"
        self.inputs[name] = InputGrid(name=name, sides=state.units, unit=unit, read=state.met_by_any())
        if mixed:
            where = (f"{stream.path}embed", stream.name or "", "stem")
            yield self._step(where, name, stream.embed, grid, states, is_block=False)
        return states, grid

    def _stage(
        self, stage: Stage, name: str, states: States, grid: Grid, earlier: Sequence[States]
    ) -> Generator[Step, None, tuple[States, Grid]]:
        """The entry of a stage, and its blocks."""
        for part in stage.enter:
            number = getattr(part.component, "reads_stage", None)
            states = self._part(states, part, earlier[number - 1] if number else {})
            grid = reading_of(part).out
        if stage.enter:
            where = (f"{stage.path}.enter", stage.label, "enter")
            yield self._step(where, name, stage.enter, grid, states, is_block=False)
        pair = (states, states)
        before: dict[int, tuple[tuple[States, States], tuple[States, States]]] = {}
        for number, index in enumerate(stage.order, 1):
            block = stage.blocks[index]
            if index in before and before[index][0] is pair:
                pair = before[index][1]
            else:
                found = self._block(block.parts, pair)
                found = pair if _same(found, pair) else found
                before[index] = (pair, found)
                pair = found
            if block.parts:
                grid = block.parts[-1].component.out(block.parts[-1].place)[0]
            if not all(isinstance(part.component, NormSubLayer) for part in block.parts):  # a last norm is no block
                where = (block.path, stage.label, f"block {number}")
                yield self._step(where, name, block.parts, grid, _joined(*pair), is_block=True)
        return _joined(*pair), grid

    def _block(self, parts: Sequence[Part], pair: tuple[States, States]) -> tuple[States, States]:
        """The two streams of a reversible block; of others, both the same."""
        one, two = pair
        if not any(is_reversible(part.residual) for part in parts):
            for part in parts:
                one = self._part(one, part, self.memory)
            return one, one
        for part in parts:
            one, two = two, _joined(one, self._part(two, part, self.memory))
        return one, two

    def _part(self, states: States, part: Part, other: States) -> States:
        """After a part; `other` is what the tokens have met that it reads beside its own stream's."""
        reading = reading_of(part)
        found = {name: self._own(state, part, reading) for name, state in states.items()}
        if reading.other is None or not other:
            return found
        relation = self._relation(_key(part, "other"), reading.out.total, reading)
        for name, state in other.items():
            added = Reached.full(reading.out.total, state.units) if state.is_full() else state.union(relation)
            found[name] = found[name].joined(added) if name in found else added
        return found

    def _own(self, state: Reached, part: Part, reading: Reading) -> Reached:
        grid, out = reading.grid, reading.out
        if reading.own is None and reading.kernel is None:
            more = out.special - grid.special
            return state.with_special(more) if more else state
        reads = own_reads(reading)
        if len(reads(0)) and len(reads(out.total - 1)) and state.is_full():
            return Reached.full(out.total, state.units)
        if reading.pairs == grid.total * out.total and state.met_by_any() == prod(state.units):  # each reads all
            return Reached.full(out.total, state.units)
        if along := self._along(part, reading):
            return state.union_along(along, grid)
        key = _key(part, "own")
        if key not in self._relations:
            self._relations[key] = relation_of(map(reads, range(out.total)))
        return state.union(self._relations[key])

    def _relation(self, key: str, outputs: int, reading: Reading) -> Relation:
        if key not in self._relations and reading.other is not None:
            self._relations[key] = relation_of(map(reading.other, range(outputs)))
        return self._relations[key]

    def _along(self, part: Part, reading: Reading) -> Along | None:
        key = _key(part, "own")
        if key not in self._lines:
            self._lines[key] = along_axes(reading)
        return self._lines[key]

    def _step(
        self,
        where: tuple[str, str, str],
        stream: str,
        parts: Sequence[Part],
        grid: Grid,
        states: States,
        *,
        is_block: bool,
    ) -> Step:
        mixers = [part.component.label() for part in parts if isinstance(part.component, Mixer)]
        others = [tag_of(type(part.component)).replace("_", " ") for part in parts]
        steps = max((self._steps(part) for part in parts), default=1)
        return Step(*where, stream, tuple(dict.fromkeys(mixers or others)), grid, states, is_block, steps)

    def _steps(self, part: Part) -> int:
        if id(part) not in self._sequential:
            rows = part.component.operations(part.place) if isinstance(part.component, Mixer) else ()
            self._sequential[id(part)] = max((row.sequential for row in rows), default=1)
        return self._sequential[id(part)]


def _key(part: Part, which: str) -> str:
    place = part.place
    return repr((which, part.component, place.grid, place.memory, part.residual))


def _joined(one: States, two: States) -> States:
    if one is two:
        return one
    return {
        name: one[name].joined(two[name]) if name in one and name in two else (one.get(name) or two[name])
        for name in (*one, *(name for name in two if name not in one))
    }


def _same(found: tuple[States, States], before: tuple[States, States]) -> bool:
    """Has a block changed nothing?"""
    return all(
        mine.keys() == others.keys() and all(_equal(mine[name], others[name]) for name in mine)
        for mine, others in zip(found, before, strict=True)
    )


def _equal(one: Reached, other: Reached) -> bool:
    if one is other:
        return True
    if one.tokens != other.tokens or not np.array_equal(one.counts(), other.counts()):
        return False
    if one.is_full():
        return True
    pairs = list(zip(one.axes, other.axes, strict=False))
    return len(one.axes) == len(other.axes) and all(mine.equals(others) for mine, others in pairs)
