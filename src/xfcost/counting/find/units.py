"""A model as units that are counted one at a time: stem, stage entry, sub-layer, whole stage, head.

A unit costs what its own keys and the tokens that enter it decide. So the costs of a configuration are a sum over
units, each counted once for all configurations that agree in it, by the code that places and counts a whole model.
A stage whose sub-layers keep grid and width is a unit per sub-layer. Any other stage is one unit. A model whose parts
must be looked at together (an encoder and a decoder of recurrent layers) is one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from xfcost.counting.find.costs import Costs, architecture_costs, parts_costs
from xfcost.formulas.component import Mixer, Place, Residual, SubLayer
from xfcost.ledger.errors import XfcostError
from xfcost.spec.architecture import LabelledPart, Part, Stream
from xfcost.spec.block_placement import Shape
from xfcost.spec.grammar import Spec, StageSpec, StreamSpec
from xfcost.spec.inputs import streams_of
from xfcost.spec.load import Loaded
from xfcost.spec.placement import Placement, place
from xfcost.spec.reader import YamlPath
from xfcost.spec.reversible import is_reversible
from xfcost.spec.schedule import schedule

_RESIDUAL: Final[YamlPath] = ("residual",)


class State(NamedTuple):
    """What enters a unit from those before it."""

    shape: Shape | None = None
    """Grid and width."""
    memory: Shape | None = None
    """The encoder's output."""
    earlier: tuple[Shape, ...] = ()
    """The shapes that leave the stages before."""


class Outcome(NamedTuple):
    """A unit, counted with one value of each key that it reads."""

    costs: Costs = Costs()
    tables: dict[str, tuple[int, int]] = {}  # noqa: RUF012 - never written to
    """The shared tables that it uses."""
    state: State | None = None
    """What leaves it; None of a unit that passes on what entered."""
    times: dict[YamlPath, int] = {}  # noqa: RUF012 - never written to
    """How often the blocks of a stage repeat."""
    refused: str | None = None
    """Why the model can't be so."""
    invalid: bool = False
    """Is it refused as a spec, even where a block that a short depth cuts off is?"""


class Unit(NamedTuple):
    """A part of the model that is counted by itself."""

    reads: tuple[YamlPath, ...]
    """The paths below which a key may change it."""
    run: Callable[[Placement, State], Outcome]
    """Counts it in one spec, for the tokens that enter it."""
    kinds_below: tuple[YamlPath, ...] = ()
    """The paths below which the `kind` of a component may change it."""


def touches(unit: Unit, path: YamlPath) -> bool:
    """May the key at `path` change the unit?"""
    kinds = path[-1] == "kind" and any(path[: len(above)] == above for above in unit.kinds_below)
    return kinds or any(_below(path, above) for above in unit.reads)


def _below(path: YamlPath, above: YamlPath) -> bool:
    """Is `path` below another, or, of one that ends in `**.depth`, some `depth` below it?"""
    if "**" not in above:
        return path[: len(above)] == above
    *start, _, name = above
    return path[: len(start)] == tuple(start) and path[-1] == name


class ChangesShapeError(Exception):
    """A sub-layer changes the grid or the width, or is checked with others: its stage is one unit."""


def message(error: XfcostError) -> str:
    """An error without its file and line, which are the same for all configurations."""
    text = str(error)
    return text.partition(" ")[2] if getattr(error, "location", None) and " " in text else text


def guarded(count: Callable[[Placement, State], Outcome]) -> Callable[[Placement, State], Outcome]:
    """`count`, with an error as an outcome."""

    def counted(placement: Placement, state: State) -> Outcome:
        try:
            return count(placement, state)
        except XfcostError as error:
            return Outcome(refused=message(error))

    return counted


def _counted(placement: Placement, parts: Iterable[LabelledPart], state: State | None = None) -> Outcome:
    costs = parts_costs(parts, placement.run.mode, placement.run.batch, placement.chosen.dtype)
    return Outcome(costs, dict(placement.components.tables), state)


def _labelled(placement: Placement, path: YamlPath, parts: Iterable[Part]) -> Iterator[LabelledPart]:
    idle = placement.run.mode == "decode" and path[:1] == ("encoder",)
    return (LabelledPart(part, "", "", idle=idle) for part in parts)


def _stream(placement: Placement, number: int) -> StreamSpec:
    return streams_of(placement.loaded, placement.run)[number][1]


def whole() -> Unit:
    """The whole model."""

    def count(placement: Placement, state: State) -> Outcome:
        return Outcome(architecture_costs(place(placement.loaded, placement.run)))

    return Unit(((),), guarded(count))


def stem(path: YamlPath, number: int) -> Unit:
    """The input and the embedding layers of a stream."""
    first = (*path, "stages", 0)
    reads = (("input",), (*path, "input"), (*path, "embed"), (*first, "dim"), (*first, "enter"))

    def count(placement: Placement, state: State) -> Outcome:
        _, parts, shape = placement.stem(path, _stream(placement, number), number)
        memory = state.shape if number else None
        return _counted(placement, _labelled(placement, path, parts), State(shape, memory))

    return Unit(reads, guarded(count))


def entry(path: YamlPath, number: int, index: int) -> Unit:
    """The layers before the first block of a stage that is counted sub-layer by sub-layer."""
    stage_path = (*path, "stages", index)
    reads = ((*stage_path, "enter"), (*stage_path, "dim"), (*stage_path, "residual"), _RESIDUAL)

    def count(placement: Placement, state: State) -> Outcome:
        stage = _stream(placement, number).stages[index]
        if is_reversible(placement.residual(stage_path, stage)):
            raise ChangesShapeError
        parts, shape = placement.entry(stage_path, stage, _entering(state), list(state.earlier))
        return _counted(placement, _labelled(placement, path, parts), _left(state, shape))

    return Unit(reads, guarded(count))


def _entering(state: State) -> Shape:
    if state.shape is None:
        raise ValueError("a stage is counted before its stem")
    return state.shape


def _left(state: State, shape: Shape) -> State:
    return State(shape, state.memory, (*state.earlier, shape))


def times(path: YamlPath, number: int, index: int) -> Unit:
    """How often each block of a stage repeats."""
    stage_path = (*path, "stages", index)
    counts = ("depth", "repeat")

    def count(placement: Placement, state: State) -> Outcome:
        stage = _stream(placement, number).stages[index]
        written, order = schedule(stage_path, stage, placement.source)
        numbers = order.counts()
        return Outcome(times={block: numbers[n] for n, (block, _) in enumerate(written)})

    return Unit(tuple((*stage_path, "**", name) for name in counts), guarded(count))


def sublayer(path: YamlPath, number: int, index: int, at: YamlPath) -> Unit:
    """The sub-layer at the path `at`."""
    stage_path = (*path, "stages", index)

    def count(placement: Placement, state: State) -> Outcome:
        stage = _stream(placement, number).stages[index]
        component = _component(placement.spec, at)
        own = component.residual
        if component.widens or (isinstance(own, Residual) and (is_reversible(own) or own.join is not None)):
            raise ChangesShapeError
        grid, dim = _entering(state)
        placement.components.encoder_output = state.memory
        where = Place(grid=grid, dim=dim, out_dim=stage.dim)
        part = placement.components.sublayer(at, component, where, placement.residual(stage_path, stage))
        if part is None:
            return Outcome(refused=message(placement.components.errors[0]))
        if part.component.out(part.place) != (grid, dim):
            raise ChangesShapeError
        return _counted(placement, _labelled(placement, path, [part]))

    reads = (at, (*stage_path, "dim"), (*stage_path, "residual"), _RESIDUAL)
    return Unit(reads, guarded(count))


def _component(spec: Spec, at: YamlPath) -> SubLayer:
    found: Any = spec
    for step in at:
        found = found[step] if isinstance(step, int) else getattr(found, step)
    return found  # type: ignore[no-any-return]


def stage(path: YamlPath, number: int, index: int) -> Unit:
    """A whole stage."""
    stage_path = (*path, "stages", index)

    def count(placement: Placement, state: State) -> Outcome:
        stream = _stream(placement, number)
        placement.components.encoder_output = state.memory
        placed, shape = placement.stage(stage_path, "", stream.stages[index], _entering(state), list(state.earlier))
        if placement.components.errors:
            return Outcome(refused=message(placement.components.errors[0]))
        parts = Stream("", stream.input or placement.spec.input, (), (placed,)).labelled_parts()
        idle = placement.run.mode == "decode" and path[:1] == ("encoder",)
        return _counted(placement, (part._replace(idle=idle) for part in parts), _left(state, shape))

    return Unit((stage_path, _RESIDUAL), guarded(count))


def head(path: YamlPath, number: int) -> Unit:
    """The head after the last stage of the last stream."""

    def count(placement: Placement, state: State) -> Outcome:
        stream = _stream(placement, number)
        layers = [*stream.embed, *(layer for one in stream.stages for layer in one.enter)]
        part = placement.head(stream.input or placement.spec.input, layers, _entering(state))
        return _counted(placement, [] if part is None else [LabelledPart(part, "", "")])

    layers_of = ((*path, "embed"), (*path, "stages"))
    return Unit((("head",), ("input",), (*path, "input")), guarded(count), kinds_below=layers_of)


def blocks(path: YamlPath, written: StageSpec, loaded: Loaded) -> list[tuple[YamlPath, int]]:
    """The blocks of a stage, those of a pattern that is cut off too: the path of each, and its sub-layers."""
    if written.pattern is not None:
        return [((*path, "pattern", number), len(block)) for number, block in enumerate(written.pattern)]
    return [(block, len(components)) for block, components in schedule(path, written, loaded.source)[0]]


def is_whole(loaded: Loaded, varied: Iterable[YamlPath]) -> bool:
    """Must the model be counted as a whole: its streams are checked against each other?"""
    spec = loaded.spec
    if spec.encoder is None and spec.decoder is None:
        return False
    kinds = any(path[-1] == "kind" for path in varied)
    return kinds or any(isinstance(one, Mixer) and one.takes_state for one in _sublayers(loaded))


def _sublayers(loaded: Loaded) -> Iterator[SubLayer]:
    for stream in (loaded.spec.encoder, loaded.spec.decoder):
        for index, written in enumerate(stream.stages if stream else ()):
            for _, components in schedule(("stages", index), written, loaded.source)[0]:
                yield from components
