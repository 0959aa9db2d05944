"""A spec and ranges of its keys -> the costs of any of its configurations, exactly and without counting each.

Units are counted one at a time: stem, stage entry, sub-layer, whole stage, head. What a unit costs is decided by its
own keys and by the tokens that enter it (a state, which units before it decide), so each is counted once for every
combination of these, by the code that places and counts a whole model. A stage whose sub-layers keep grid and width is
a unit per sub-layer. Any other stage is one unit. A model whose parts must be looked at together (an encoder and a
decoder of recurrent layers) is one unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from xfcost.counting.find.costs import (
    Array,
    Costs,
    Term,
    Terms,
    architecture_costs,
    array_of,
    check_cells,
    exact_array,
    joined,
    parts_costs,
    spread,
)
from xfcost.counting.find.variables import Assigned, Variable, assigned
from xfcost.formulas.component import Place, Residual
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.spec.architecture import LabelledPart, Part, Stream, schedule
from xfcost.spec.checks import is_reversible
from xfcost.spec.grammar import Spec, StageSpec, StreamSpec, converted
from xfcost.spec.grammar_errors import spec_error
from xfcost.spec.inputs import streams_of
from xfcost.spec.load import Loaded
from xfcost.spec.placement import Placement, Shape, place
from xfcost.spec.reader import YamlPath, path_text
from xfcost.spec.run import Run, chosen_for, weights_of

_NUMBERS: Final = re.compile(r"(?:(?<!\S)-)?\d[\d,.]*(?:[ ×x,]+\d[\d,.]*)*(?:, …)?")


class ReasonNumbers:
    """Numbers of reasons, in the order in which they came up; 0 is none."""

    def __init__(self) -> None:
        self.texts = [""]
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of the reason that `text` is, or is like."""
        if text is None:
            return 0
        number = self._numbers.setdefault(_NUMBERS.sub("#", text), len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number


_RESIDUAL: Final[YamlPath] = ("residual",)


class State(NamedTuple):
    """What enters a unit from those before it."""

    shape: Shape | None = None
    """Grid and width."""
    memory: Shape | None = None
    """The encoder's output."""
    earlier: tuple[Shape, ...] = ()
    """The shapes that leave the stages before."""

    def after(self, shape: Shape) -> State:
        """What leaves a stage."""
        return State(shape, self.memory, (*self.earlier, shape))


class UnitOutcome(NamedTuple):
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
    run: Callable[[Placement, State], UnitOutcome]
    """Counts it in one spec, for the tokens that enter it."""
    kinds_below: tuple[YamlPath, ...] = ()
    """The paths below which the `kind` of a component may change it."""


def touches(unit: Unit, path: YamlPath) -> bool:
    """May the key at `path` change the unit?"""
    if path[-1] == "kind" and any(path[: len(above)] == above for above in unit.kinds_below):
        return True
    for above in unit.reads:
        start, any_below, name = above[:-2], above[-2:-1] == ("**",), above[-1:]
        if path[: len(start)] == start and path[-1:] == name if any_below else path[: len(above)] == above:
            return True
    return False


class ChangesShapeError(Exception):
    """A sub-layer changes the grid or the width, or is checked with others: its stage is one unit."""


def message(error: XfcostError) -> str:
    """An error without its file and line, which are the same for all configurations."""
    text = str(error)
    return text.partition(" ")[2] if getattr(error, "location", None) and " " in text else text


def _outcome(placement: Placement, parts: Iterable[LabelledPart], state: State | None = None) -> UnitOutcome:
    costs = parts_costs(parts, placement.run.mode, placement.run.batch, placement.chosen.dtype)
    return UnitOutcome(costs, dict(placement.components.tables), state)


def _labelled(placement: Placement, path: YamlPath, parts: Iterable[Part]) -> Iterator[LabelledPart]:
    idle = placement.run.mode == "decode" and path[:1] == ("encoder",)
    return (LabelledPart(part, "", "", idle=idle) for part in parts)


def _stream(placement: Placement, number: int) -> StreamSpec:
    return streams_of(placement.loaded, placement.run)[number][1]


def whole() -> Unit:
    """The whole model."""

    def count(placement: Placement, state: State) -> UnitOutcome:
        return UnitOutcome(architecture_costs(place(placement.loaded, placement.run)))

    return Unit(((),), count)


def stem(path: YamlPath, number: int) -> Unit:
    """The input and the embedding layers of a stream."""
    first = (*path, "stages", 0)
    reads = (("input",), (*path, "input"), (*path, "embed"), (*first, "dim"), (*first, "enter"))

    def count(placement: Placement, state: State) -> UnitOutcome:
        _, parts, shape = placement.stem(path, _stream(placement, number), number)
        memory = state.shape if number else None
        return _outcome(placement, _labelled(placement, path, parts), State(shape, memory))

    return Unit(reads, count)


def entry(path: YamlPath, number: int, index: int) -> Unit:
    """The layers before the first block of a stage that is counted sub-layer by sub-layer."""
    stage_path = (*path, "stages", index)
    reads = ((*stage_path, "enter"), (*stage_path, "dim"), (*stage_path, "residual"), _RESIDUAL)

    def count(placement: Placement, state: State) -> UnitOutcome:
        stage = _stream(placement, number).stages[index]
        if is_reversible(placement.residual(stage_path, stage)):
            raise ChangesShapeError
        parts, shape = placement.entry(stage_path, stage, _entering(state), list(state.earlier))
        return _outcome(placement, _labelled(placement, path, parts), state.after(shape))

    return Unit(reads, count)


def _entering(state: State) -> Shape:
    if state.shape is None:
        raise ValueError("a stage is counted before its stem")
    return state.shape


def times(path: YamlPath, number: int, index: int) -> Unit:
    """How often each block of a stage repeats."""
    stage_path = (*path, "stages", index)
    counts = ("depth", "repeat")

    def count(placement: Placement, state: State) -> UnitOutcome:
        stage = _stream(placement, number).stages[index]
        written, order = schedule(stage_path, stage, placement.source)
        numbers = order.counts()
        return UnitOutcome(times={block: numbers[n] for n, (block, _) in enumerate(written)})

    return Unit(tuple((*stage_path, "**", name) for name in counts), count)


def sublayer(path: YamlPath, number: int, index: int, at: YamlPath) -> Unit:
    """The sub-layer at the path `at`."""
    stage_path = (*path, "stages", index)

    def count(placement: Placement, state: State) -> UnitOutcome:
        stage = _stream(placement, number).stages[index]
        component: Any = placement.spec
        for step in at:
            component = component[step] if isinstance(step, int) else getattr(component, step)
        own = component.residual
        if component.widens or (isinstance(own, Residual) and (is_reversible(own) or own.join is not None)):
            raise ChangesShapeError
        grid, dim = _entering(state)
        placement.components.encoder_output = state.memory
        where = Place(grid=grid, dim=dim, out_dim=stage.dim)
        part = placement.components.sublayer(at, component, where, placement.residual(stage_path, stage))
        if part is None:
            return UnitOutcome(refused=message(placement.components.errors[0]))
        if part.component.out(part.place) != (grid, dim):
            raise ChangesShapeError
        return _outcome(placement, _labelled(placement, path, [part]))

    reads = (at, (*stage_path, "dim"), (*stage_path, "residual"), _RESIDUAL)
    return Unit(reads, count)


def stage(path: YamlPath, number: int, index: int) -> Unit:
    """A whole stage."""
    stage_path = (*path, "stages", index)

    def count(placement: Placement, state: State) -> UnitOutcome:
        stream = _stream(placement, number)
        placement.components.encoder_output = state.memory
        placed, shape = placement.stage(stage_path, "", stream.stages[index], _entering(state), list(state.earlier))
        if placement.components.errors:
            return UnitOutcome(refused=message(placement.components.errors[0]))
        parts = Stream("", stream.input or placement.spec.input, (), (placed,)).labelled_parts()
        idle = placement.run.mode == "decode" and path[:1] == ("encoder",)
        return _outcome(placement, (part._replace(idle=idle) for part in parts), state.after(shape))

    return Unit((stage_path, _RESIDUAL), count)


def head(path: YamlPath, number: int) -> Unit:
    """The head after the last stage of the last stream."""

    def count(placement: Placement, state: State) -> UnitOutcome:
        stream = _stream(placement, number)
        layers = [*stream.embed, *(layer for one in stream.stages for layer in one.enter)]
        part = placement.head(stream.input or placement.spec.input, layers, _entering(state))
        return _outcome(placement, [] if part is None else [LabelledPart(part, "", "")])

    layers_of = ((*path, "embed"), (*path, "stages"))
    return Unit((("head",), ("input",), (*path, "input")), count, kinds_below=layers_of)


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
    blocks = (
        components
        for stream in (spec.encoder, spec.decoder)
        for index, written in enumerate(stream.stages if stream else ())
        for _, components in schedule(("stages", index), written, loaded.source)[0]
    )
    return kinds or any(one.takes_state for components in blocks for one in components)


# Units are counted so many times at most; each takes about 0.1 ms.
MOST_COUNTED: Final = 3_000_000
# A part that is counted more often says so.
_MANY: Final = 20_000
_ABSENT: Final = object()


class Space(NamedTuple):
    """The costs of every configuration of some variables."""

    terms: Terms
    reasons: tuple[str, ...]
    """Why configurations can't be; the first is none."""


class _States(NamedTuple):
    """What leaves the units so far, for all values of some variables."""

    axes: tuple[int, ...]
    numbers: Array
    """Of each cell the number of its state; -1 where an earlier unit refuses."""
    states: list[State]


class _CountedUnit(NamedTuple):
    """A unit, counted for all values of some variables."""

    axes: tuple[int, ...]
    numbers: Array
    """Of each cell the number of its outcome; the last of them is no outcome at all."""
    outcomes: list[UnitOutcome]


class Builder:
    """Builds the space of one spec."""

    def __init__(
        self, loaded: Loaded, run: Run, variables: Sequence[tuple[int, Variable]], sizes: tuple[int, ...],
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self._run, self._sizes, self._progress = run, sizes, progress
        self._chosen = chosen_for([loaded.spec], run)
        self._keys = {number: variable.key for number, variable in variables}
        self._data = msgspec.json.decode(msgspec.json.encode(loaded.data))
        self._loaded = loaded
        self._assigned = assigned(self._data, variables)
        self._given = {
            (one.number, place): container.get(step, _ABSENT) if isinstance(container, dict) else container[step]
            for one in self._assigned
            for place, (container, step, _) in enumerate(one.places)
        }
        self._reasons = ReasonNumbers()
        self._terms: list[Term] = []
        self._tables: dict[str, list[tuple[tuple[int, ...], Array]]] = {}
        self._touched: set[YamlPath] = set()
        self._counted = 0

    def space(self) -> Space:
        """The tables of all units.

        Raises:
            UsageError: no cost depends on a key, or units would be counted too often.
        """
        paths = [path for one in self._assigned for *_, path in one.places]
        if weights_of(self._run, self._loaded.weights)[0] is not None or is_whole(self._loaded, paths):
            self._add(self._count(whole(), _States((), np.zeros((), int), [State()])))
        else:
            self._streams(paths)
        for path in paths:
            if path not in self._touched:
                raise UsageError(f"--vary: no cost depends on {path_text(path)}; leave it out")
        self._add_shared()
        return Space(joined(self._terms, self._sizes), tuple(self._reasons.texts))

    def _streams(self, paths: Sequence[YamlPath]) -> None:
        states = _States((), np.zeros((), int), [State()])
        streams = streams_of(self._loaded, self._run)
        layers = (layer for _, stream in streams for stage in stream.stages for layer in stage.enter)
        reads_stages = any(layer.reads_stage for layer in layers)
        keeps = reads_stages or any(path[-1] == "kind" for path in paths)
        for number, (path, stream) in enumerate(streams):
            states = self._passed(stem(path, number), states)
            for index in range(len(stream.stages)):
                states = self._stage(path, number, index, states)
                if not keeps:
                    states = states._replace(states=[state._replace(earlier=()) for state in states.states])
                states = _merged(states)
        self._add(self._count(head(streams[-1][0], len(streams) - 1), states))

    def _stage(self, path: YamlPath, number: int, index: int, states: _States) -> _States:
        """A stage, sub-layer by sub-layer where these keep the shape."""
        before = len(self._terms), {name: list(uses) for name, uses in self._tables.items()}
        try:
            return self._stage_by_parts(path, number, index, states)
        except ChangesShapeError:
            del self._terms[before[0] :]
            self._tables = before[1]
            return self._passed(stage(path, number, index), states)

    def _stage_by_parts(self, path: YamlPath, number: int, index: int, states: _States) -> _States:
        written = streams_of(self._loaded, self._run)[number][1].stages[index]
        states = self._passed(entry(path, number, index), states)
        repeats = self._count(times(path, number, index), _States((), np.zeros((), int), [State()]))
        self._add(repeats)
        for block, components in blocks((*path, "stages", index), written, self._loaded):
            for component in range(components):
                unit = sublayer(path, number, index, (*block, component))
                self._add(self._count(unit, states), (block, repeats))
        return states

    def _passed(self, unit: Unit, states: _States) -> _States:
        """The states that leave a unit, whose costs are added."""
        counted = self._count(unit, states)
        self._add(counted)
        numbers: dict[State, int] = {}
        of_outcome = [
            -1 if outcome.state is None else numbers.setdefault(outcome.state, len(numbers))
            for outcome in counted.outcomes
        ]
        return _merged(_States(counted.axes, np.array(of_outcome)[counted.numbers], list(numbers)))

    def _count(self, unit: Unit, states: _States) -> _CountedUnit:
        """The unit for every combination of a state that enters it and the values of its own keys."""
        own = [one for one in self._assigned if any(touches(unit, path) for *_, path in one.places)]
        self._touched |= {path for one in own for *_, path in one.places if touches(unit, path)}
        locals_ = tuple(one.number for one in own)
        axes = tuple(sorted({*states.axes, *locals_}))
        check_cells(axes, self._sizes, self._keys)
        local_cells = np.arange(int(np.prod([self._sizes[axis] for axis in locals_], dtype=int)))
        local = spread(local_cells.reshape([self._sizes[axis] for axis in locals_]), locals_, axes, self._sizes)
        entering = spread(states.numbers, states.axes, axes, self._sizes)
        pairs = np.where(entering < 0, -1, local * len(states.states) + entering)
        different, numbers = np.unique(pairs, return_inverse=True)
        outcomes = list(self._outcomes(unit, own, different, states.states))
        numbers = numbers.reshape(pairs.shape)
        if different[0] < 0:  # refused before; the place of no outcome is the last
            numbers = np.where(numbers == 0, len(outcomes), numbers - 1)
        return _CountedUnit(axes, numbers, [*outcomes, UnitOutcome()])

    def _outcomes(
        self, unit: Unit, own: Sequence[Assigned], different: Array, states: Sequence[State]
    ) -> Iterator[UnitOutcome]:
        """The unit counted once for each pair of own values and state; own values are set only when they change."""
        self._counted += len(different)
        if self._counted > MOST_COUNTED:
            raise UsageError(
                f"--vary: parts of the model would be counted more than {MOST_COUNTED:,} times; vary fewer keys of "
                "one stage at once, or with longer steps"
            )
        if len(different) > _MANY:
            names = ", ".join(self._keys[one.number] for one in own) or "the tokens that enter"
            self._progress(
                f"{len(different):,} combinations of {names} in one part of the model are counted one by one"
            )
        last, loaded = -1, msgspec.structs.replace(self._loaded, data=self._data)
        refused: str | None = None
        for pair in different.tolist():
            if pair < 0:
                continue
            local, state = divmod(pair, len(states))
            if local != last:
                last = local
                try:
                    loaded, refused = self._with_values(own, local), None
                except msgspec.ValidationError as error:
                    refused = message(spec_error(str(error), self._data, self._loaded.source))
            if refused is not None:
                yield UnitOutcome(refused=refused, invalid=True)
                continue
            try:
                yield unit.run(Placement(loaded, self._run, self._chosen), states[state])
            except XfcostError as error:
                yield UnitOutcome(refused=message(error))

    def _with_values(self, own: Sequence[Assigned], local: int) -> Loaded:
        """The spec with these values of a unit's own keys, and the others as the spec has them."""
        for one in self._assigned:
            for at, (container, step, _) in enumerate(one.places):
                container[step] = self._given[one.number, at]
                if container[step] is _ABSENT:
                    del container[step]
        for one in reversed(own):
            local, number = divmod(local, self._sizes[one.number])
            for (container, step, _), value in zip(one.places, one.values[number], strict=True):
                container[step] = value
        return msgspec.structs.replace(self._loaded, spec=converted(self._data, Spec), data=self._data)

    def _add(self, counted: _CountedUnit, repeated: tuple[YamlPath, _CountedUnit] | None = None) -> None:
        """A term of the outcomes, each as often as its block repeats."""
        axes, numbers = counted.axes, counted.numbers
        repeats: Array = np.ones((), dtype=np.int64)
        if repeated is not None:
            block, of_stage = repeated
            axes = tuple(sorted({*axes, *of_stage.axes}))
            check_cells(axes, self._sizes, self._keys)
            table = exact_array(outcome.times.get(block, 0) for outcome in of_stage.outcomes)
            repeats = spread(table[of_stage.numbers], of_stage.axes, axes, self._sizes)
            numbers = spread(numbers, counted.axes, axes, self._sizes)
        most = int(repeats.max())
        figures = {
            name: exact_times((getattr(one.costs, name) for one in counted.outcomes), most) for name in Costs._fields
        }
        tables = {
            name: array_of(array_of(column[numbers]) * (repeats if name != "attention" else repeats > 0))
            for name, column in figures.items()
        }
        reasons = np.array([self._reasons.number(one.refused) for one in counted.outcomes])
        stands = (repeats > 0) | np.array([one.invalid for one in counted.outcomes])[numbers]
        self._terms.append(Term(axes, Costs(**tables), np.where(stands, reasons[numbers], 0)))
        for name in dict.fromkeys(name for one in counted.outcomes for name in one.tables):
            rows = exact_array(one.tables.get(name, (0, 0))[0] for one in counted.outcomes)
            columns = exact_array(one.tables.get(name, (0, 0))[1] for one in counted.outcomes)
            present = repeats > 0
            self._tables.setdefault(name, []).append(
                (axes, np.stack([rows[numbers] * present, columns[numbers] * present]))
            )

    def _add_shared(self) -> None:
        """Terms of the shared tables: each counts once, and all parts that use one must agree."""
        for name, uses in self._tables.items():
            axes = tuple(sorted({axis for own, _ in uses for axis in own}))
            check_cells(axes, self._sizes, self._keys)
            shapes = [np.stack([spread(side, own, axes, self._sizes) for side in table]) for own, table in uses]
            shape = shapes[0]
            for other in shapes[1:]:
                shape = np.where(shape[:1] > 0, shape, other)
            differs = sum(((one[0] > 0) & (one != shape).any(axis=0)) for one in shapes) > 0
            reason = f"the table {name!r} has different shapes in parts that share it; shared tables must agree"
            number = self._reasons.number(reason) if differs.any() else 0
            zeros = np.zeros(shape.shape[1:], dtype=np.int64)
            params, element = shape[0] * shape[1], BYTES_PER_ELEMENT[self._chosen.dtype]
            held = {"params": params, "weights": params * element}
            costs = Costs(**(dict.fromkeys(Costs._fields, zeros) | held))
            self._terms.append(Term(axes, costs, np.where(differs, number, 0)))


def exact_times(values: Any, most: int) -> Array:
    """`values` as an array that can be multiplied by `most`."""
    every = list(values)
    return exact_array(every) if max(every) * most < 2**63 else np.array(every, dtype=object)


def _merged(states: _States) -> _States:
    """The states, each once, without the axes on which none depends."""
    numbers: dict[State, int] = {}
    same = np.array([numbers.setdefault(state, len(numbers)) for state in states.states] + [-1])
    table, axes = same[states.numbers], list(states.axes)
    for axis in reversed(range(len(axes))):
        most = table.max(axis=axis, keepdims=True)
        if ((table == most) | (table < 0)).all():  # a unit refuses where there is none; its term says so
            table = most.squeeze(axis)
            del axes[axis]
    return _States(tuple(axes), table, list(numbers))
