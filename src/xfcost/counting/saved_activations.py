"""Saved activations in closed form: the rows' declarations of tensors, followed through a model block by block.

Each storage counts once, at the first row that saves it. A block costs what an earlier one did that it began like, so
that depth takes no time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import reduce
from math import prod
from typing import NamedTuple

from xfcost.counting.handed_states import HandedStates
from xfcost.counting.running_rows import Undeclared, run_rows
from xfcost.counting.storage import Held, Storage
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import INPUT, MEMORY, RESIDUAL, SECOND, width_of
from xfcost.spec.architecture import Architecture, Part, Stage, Stream
from xfcost.spec.grammar import ImageInput, TokenInput, VideoInput


class SavedActivations(NamedTuple):
    """By the path of a row: saved bytes of all its blocks, and bytes of activations that all its blocks move."""

    saved: dict[str, int]
    operands: dict[str, int]


def saved_activations(ledger: Ledger, architecture: Architecture) -> SavedActivations | None:
    """The saved activations of a training step; None where a row does not declare its tensors."""
    try:
        return followed(ledger, architecture)
    except Undeclared:
        return None


def followed(ledger: Ledger, architecture: Architecture) -> SavedActivations:
    """The same.

    Raises:
        Undeclared: a row does not declare its tensors, or reads one that no row writes.
    """
    return _Following(ledger, architecture).found()


class _State(NamedTuple):
    """The tensors with which a block begins."""

    stream: Held
    memory: Held | None


def _state(stream: Storage, memory: Storage | None) -> _State:
    return _State(stream.held, None if memory is None else memory.held)


class _Costs(NamedTuple):
    """Bytes by row."""

    saved: Counter[str]
    operands: Counter[str]


class _Following:
    """The tensors of a model, followed from the input to the head."""

    def __init__(self, ledger: Ledger, architecture: Architecture) -> None:
        self.architecture = architecture
        self.batch, self.element = architecture.batch, ledger.bytes_per_element
        self.states = HandedStates(architecture)
        self.rows: dict[str, list[Operation]] = defaultdict(list)
        for row in ledger.rows:
            self.rows[row.component].append(row)
        self.saved: Counter[str] = Counter({row.path: 0 for row in ledger.rows})
        self.operands: Counter[str] = Counter(self.saved)

    def found(self) -> SavedActivations:
        """By row, over all blocks."""
        memory: Storage | None = None
        for stream in self.architecture.streams:
            memory = self._stream(stream, memory)
        if self.architecture.head is not None and memory is not None:
            self._part(self.architecture.head, memory, None)
        return SavedActivations(dict(self.saved), dict(self.operands))

    def _stream(self, stream: Stream, memory: Storage | None) -> Storage:
        x = Storage(self._raw(stream))
        for part in stream.embed:
            x = self._part(part, x, None)
        earlier: list[Storage] = []
        for stage in stream.stages:
            x = self._stage(stage, x, memory, earlier)
            earlier.append(x)
        return x

    def _raw(self, stream: Stream) -> Held:
        source = stream.input
        if isinstance(source, ImageInput | VideoInput):
            elements = source.channels * prod(source.sides)
            return Held(elements, self.element, gradient=False, by_channel=True)
        if isinstance(source, TokenInput):
            return Held(source.length, width_of("int64", self.element), gradient=False)
        return Held(source.length * source.channels, self.element, gradient=False)

    def _stage(self, stage: Stage, x: Storage, memory: Storage | None, earlier: list[Storage]) -> Storage:
        for part in stage.enter:
            number = getattr(part.component, "reads_stage", None)
            x = self._part(part, x, earlier[number - 1] if number else None)
        if self.states.any:
            if stage.exit is not None:
                raise Undeclared(f"{stage.exit.path}: states of a reversible stage are handed over")
            return reduce(lambda x, part: self._part(part, x, memory), self.states.separately(stage), x)
        if stage.exit is None:
            return self._blocks(stage, x, memory)
        self._blocks(stage, Storage(x.held), memory and Storage(memory.held))
        streams = [Storage(x.held._replace(gradient=True, saved=False)) for _ in range(2)]
        return self._part(stage.exit, streams[0], memory, second=streams[1])

    def _blocks(self, stage: Stage, x: Storage, memory: Storage | None) -> Storage:
        """The blocks of a stage; a block that begins like an earlier one isn't followed again."""
        numbers: dict[tuple[int, _State], tuple[int, _State]] = {}
        ran: list[_Costs] = []

        def step(index: int, state: _State) -> tuple[int, _State]:
            if (index, state) not in numbers:
                after = Storage(state.stream) if ran else x  # the first one marks its input as saved
                reads = None if state.memory is None else Storage(state.memory)
                costs = _Costs(Counter(), Counter())
                for part in stage.blocks[index].parts:
                    after = self._run(costs, part, after, reads)
                numbers[index, state] = len(ran), _state(after, reads)
                ran.append(costs)
            return numbers[index, state]

        order, (stream, held) = stage.order.mapped(_state(x, memory), step)
        for number, times in order.counts().items():
            recomputed = 0 if stage.exit else times  # a reversible stage saves nothing inside its blocks
            self._add(ran[number].saved, self.saved, recomputed)
            self._add(ran[number].operands, self.operands, times)
        if memory is not None and held is not None:
            memory.saved = held.saved
        return Storage(stream) if ran else x

    def _part(self, part: Part, x: Storage, memory: Storage | None, second: Storage | None = None) -> Storage:
        """A component that runs once."""
        return self._run(_Costs(self.saved, self.operands), part, x, memory, second)

    def _run(
        self, costs: _Costs, part: Part, x: Storage, memory: Storage | None, second: Storage | None = None
    ) -> Storage:
        named = {INPUT: x, RESIDUAL: x, MEMORY: memory, SECOND: second}
        scope = {name: storage for name, storage in named.items() if storage is not None}
        scope |= self.states.given(part.component)
        run = run_rows(self.rows[part.path], scope, self.batch, self.element)
        self.states.keep(part.component, scope)
        self._add(run.saved, costs.saved, 1)
        self._add(run.operands, costs.operands, 1)
        return run.output

    @staticmethod
    def _add(found: Mapping[str, int], to: Counter[str], times: int) -> None:
        for path, amount in found.items():
            to[path] += amount * times
