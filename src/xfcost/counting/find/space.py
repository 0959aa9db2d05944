"""A spec and ranges of its keys -> the costs of any of its configurations, exactly and without counting each.

The units of `units` are counted one after another, each once for every combination of what it depends on: the tokens
that enter it (a state, which units before it decide) and the values of its own keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from xfcost.counting.find import units
from xfcost.counting.find.costs import Costs
from xfcost.counting.find.reasons import ReasonNumbers
from xfcost.counting.find.tables import Array, Term, Terms, array_of, check_cells, exact_array, joined, spread
from xfcost.counting.find.units import ChangesShapeError, Outcome, State, Unit, touches
from xfcost.counting.find.variables import Assigned, Variable, assigned
from xfcost.formulas.layer import Enter
from xfcost.ledger.errors import UsageError, printable
from xfcost.spec.default_options import chosen_for
from xfcost.spec.grammar import Spec
from xfcost.spec.inputs import streams_of
from xfcost.spec.kinds import converted, split_path
from xfcost.spec.load import Loaded
from xfcost.spec.placement import Placement
from xfcost.spec.reader import YamlPath, path_text
from xfcost.spec.run import Run

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


class _Counted(NamedTuple):
    """A unit, counted for all values of some variables."""

    axes: tuple[int, ...]
    numbers: Array
    """Of each cell the number of its outcome; the last of them is no outcome at all."""
    outcomes: list[Outcome]


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
            (one.number, place): _value_at(container, step)
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
        if units.is_whole(self._loaded, paths):
            self._add(self._count(units.whole(), _States((), np.zeros((), int), [State()])))
        else:
            self._streams(paths)
        for path in paths:
            if path not in self._touched:
                raise UsageError(f"--vary: no cost depends on {path_text(path)}; leave it out")
        self._add_shared()
        return Space(joined(self._terms, self._sizes), tuple(self._reasons.texts))

    def _streams(self, paths: Sequence[YamlPath]) -> None:
        states = _States((), np.zeros((), int), [State()])
        keeps = self._reads_stages() or any(path[-1] == "kind" for path in paths)
        streams = streams_of(self._loaded, self._run)
        for number, (path, stream) in enumerate(streams):
            states = self._passed(units.stem(path, number), states)
            for index in range(len(stream.stages)):
                states = self._stage(path, number, index, states)
                if not keeps:
                    states = states._replace(states=[state._replace(earlier=()) for state in states.states])
                states = _merged(states)
        self._add(self._count(units.head(streams[-1][0], len(streams) - 1), states))

    def _reads_stages(self) -> bool:
        streams = (stream for _, stream in streams_of(self._loaded, self._run))
        layers = (layer for stream in streams for stage in stream.stages for layer in stage.enter)
        return any(isinstance(layer, Enter) and layer.reads_stage for layer in layers)

    def _stage(self, path: YamlPath, number: int, index: int, states: _States) -> _States:
        """A stage, sub-layer by sub-layer where these keep the shape."""
        before = len(self._terms), {name: list(uses) for name, uses in self._tables.items()}
        try:
            return self._stage_by_parts(path, number, index, states)
        except ChangesShapeError:
            del self._terms[before[0] :]
            self._tables = before[1]
            return self._passed(units.stage(path, number, index), states)

    def _stage_by_parts(self, path: YamlPath, number: int, index: int, states: _States) -> _States:
        written = streams_of(self._loaded, self._run)[number][1].stages[index]
        states = self._passed(units.entry(path, number, index), states)
        repeats = self._count(units.times(path, number, index), _States((), np.zeros((), int), [State()]))
        self._add(repeats)
        for block, components in units.blocks((*path, "stages", index), written, self._loaded):
            for component in range(components):
                unit = units.sublayer(path, number, index, (*block, component))
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

    def _count(self, unit: Unit, states: _States) -> _Counted:
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
        return _Counted(axes, numbers, [*outcomes, Outcome()])

    def _outcomes(
        self, unit: Unit, own: Sequence[Assigned], different: Array, states: Sequence[State]
    ) -> Iterator[Outcome]:
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
        last, loaded = -1, Loaded(self._loaded.spec, self._data, self._loaded.source, self._loaded.name)
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
                    refused = _grammar_message(str(error))
            yield (
                Outcome(refused=refused, invalid=True)
                if refused
                else unit.run(Placement(loaded, self._run, self._chosen), states[state])
            )

    def _with_values(self, own: Sequence[Assigned], local: int) -> Loaded:
        """The spec with these values of a unit's own keys, and the others as the spec has them."""
        for one in self._assigned:
            for place, (container, step, _) in enumerate(one.places):
                _put(container, step, self._given[one.number, place])
        for one in reversed(own):
            local, number = divmod(local, self._sizes[one.number])
            for (container, step, _), value in zip(one.places, one.values[number], strict=True):
                container[step] = value
        return Loaded(converted(self._data, Spec), self._data, self._loaded.source, self._loaded.name)

    def _add(self, counted: _Counted, repeated: tuple[YamlPath, _Counted] | None = None) -> None:
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
            costs = Costs(**(dict.fromkeys(Costs._fields, zeros) | {"params": shape[0] * shape[1]}))
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


def _value_at(container: Any, step: str | int) -> Any:
    return container.get(step, _ABSENT) if isinstance(container, dict) else container[step]


def _put(container: Any, step: Any, value: Any) -> None:
    if value is _ABSENT:
        container.pop(step, None)
    else:
        container[step] = value


def _grammar_message(text: str) -> str:
    words, path = split_path(text)
    return f"{printable(path.lstrip('.'))}: {words}" if path else words
