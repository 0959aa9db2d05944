"""Saved activations in closed form: one tape through the programs of a model, block by block.

Each storage counts once, at the first row that saves it. A block costs what an earlier one did that it began like, so
that depth takes no time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

from xfcost.formulas.component import Component, Number, SubLayer
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.tensors import Type
from xfcost.program.residual import in_residual
from xfcost.program.symbolic import Shape, Storage, Symbolic
from xfcost.program.tape import RowBytes, Tape
from xfcost.spec.architecture import Architecture, Part, Stage, Stream
from xfcost.spec.grammar import ImageInput, TokenInput, VideoInput


class _TensorState(NamedTuple):
    """What a block can know of a tensor with which it begins."""

    shape: Shape
    strides: Shape
    offset: Number
    learns: bool
    once: bool
    elements: Number
    type: Type
    saved: bool

    def tensor(self, tape: Tape) -> Symbolic:
        """One like it."""
        storage = Storage(self.elements, self.type, saved=self.saved)
        shape, strides, offset, learns, once, *_ = self
        return Symbolic(tape, shape, storage, strides, offset=offset, learns=learns, once=once)


def _state(x: Symbolic) -> _TensorState:
    storage = x.storage
    return _TensorState(
        x.shape, x.strides, x.offset, x.learns, x.once, storage.elements, storage.type, storage.saved or storage.held
    )


class _ModelTape(Tape):
    """The tape of a model: tensors go on from component to component."""

    def __init__(self, batch: int, element: int) -> None:
        super().__init__(batch=batch, element=element)
        self.states: deque[Sequence[Sequence[Any]]] = deque()
        """The last states of the encoder's recurrent layers, by direction, in the order in which the layers run."""

    def hand_over(self, *states: Sequence[Any]) -> None:
        self.states.append(states)

    def handed_over(self, number: int, shapes: Sequence[Shape]) -> Sequence[Symbolic]:
        """The state of a direction of the encoder's layer that a layer starts from; the last one takes it away."""
        states = self.states[0]
        if number == len(states) - 1:
            self.states.popleft()
        return states[number]


class SavedActivations(NamedTuple):
    """By the path of a row: saved bytes of all its blocks, and bytes of activations that all its blocks move."""

    saved: dict[str, int]
    operands: dict[str, int]
    masks: dict[str, int]
    """Those of the saved bytes that are masks, the same for all samples and heads."""


def saved_activations(ledger: Ledger, architecture: Architecture) -> SavedActivations | None:
    """The saved activations of a training step; None where a reversible stage hands over states of recurrences."""
    following = _Following(ledger, architecture)
    hands_over = following.hands_over and any(stage.exit for one in architecture.streams for stage in one.stages)
    return None if hands_over else following.found()


def _starts_from_encoder(component: Component) -> bool:
    return component.takes_state and getattr(component, "start", None) == "encoder"


class _Following:
    """The tensors of a model, followed from the input to the head."""

    def __init__(self, ledger: Ledger, architecture: Architecture) -> None:
        self.architecture = architecture
        self.tape = _ModelTape(architecture.batch, ledger.bytes_per_element)
        self.total = RowBytes(*(Counter({row.path: 0 for row in ledger.rows}) for _ in range(3)))
        self.hands_over = any(_starts_from_encoder(labelled.part.component) for labelled in architecture.parts())
        """Do layers start from the last states of the encoder's?"""

    def found(self) -> SavedActivations:
        """By row, over all blocks."""
        self.tape.bytes = self.total
        memory: Symbolic | None = None
        for stream in self.architecture.streams:
            memory = self._stream(stream, memory)
        if self.architecture.head is not None and memory is not None:
            self._part(self.architecture.head, memory)
        return SavedActivations(*(dict(one) for one in self.total))

    def _stream(self, stream: Stream, memory: Symbolic | None) -> Symbolic:
        x = reduce(lambda x, part: self._part(part, x), stream.embed, self._raw(stream))
        earlier: list[Symbolic] = []
        for stage in stream.stages:
            x = self._stage(stage, x, memory, earlier)
            earlier.append(x)
        return x

    def _raw(self, stream: Stream) -> Symbolic:
        """The model's input: pixels by channels, numbers of tokens, or vectors."""
        source, tape = stream.input, self.tape
        if isinstance(source, ImageInput | VideoInput):
            return tape.input(source.channels, prod(source.sides), learns=False).transpose(1, 2)
        if isinstance(source, TokenInput):
            return tape.input(source.length, type_="int64", learns=False)
        return tape.input(source.length, source.channels, learns=False)

    def _stage(self, stage: Stage, x: Symbolic, memory: Symbolic | None, earlier: list[Symbolic]) -> Symbolic:
        for part in stage.enter:
            number = part.component.reads_stage
            x = self._part(part, x, *([earlier[number - 1]] if number else []))
        if self.hands_over:  # no block begins like another where each has a state of its own
            parts = (part for index in stage.order for part in stage.blocks[index].parts)
            return reduce(lambda x, part: self._part(part, x, *_memory(part, memory)), parts, x)
        if stage.exit is None:
            return self._blocks(stage, x, memory)
        self._blocks(stage, _state(x).tensor(self.tape), memory and _state(memory).tensor(self.tape))
        streams = [_state(x)._replace(learns=True, saved=False).tensor(self.tape) for _ in range(2)]
        # saved by the blocks, which all are one function
        self.tape.save_storages(f"{stage.exit.path}.join", (*streams, *([] if memory is None else [memory])))
        return self._part(stage.exit, *streams)

    def _blocks(self, stage: Stage, x: Symbolic, memory: Symbolic | None) -> Symbolic:
        """The blocks of a stage; a block that begins like an earlier one isn't followed again."""
        State = tuple[_TensorState, _TensorState | None]
        numbers: dict[tuple[int, State], tuple[int, State]] = {}
        ran: list[RowBytes] = []

        def state(x: Symbolic, memory: Symbolic | None) -> State:
            return _state(x), None if memory is None else _state(memory)

        def step(index: int, before: State) -> tuple[int, State]:
            if (index, before) not in numbers:
                after = before[0].tensor(self.tape) if ran else x  # the first one marks its input as saved
                reads = None if before[1] is None else before[1].tensor(self.tape)
                self.tape.bytes = RowBytes(Counter(), Counter(), Counter())
                for part in stage.blocks[index].parts:
                    after = self._part(part, after, *_memory(part, reads))
                numbers[index, before] = len(ran), state(after, reads)
                ran.append(self.tape.bytes)
            return numbers[index, before]

        order, (last, held) = stage.order.mapped(state(x, memory), step)
        self.tape.bytes = self.total
        for number, times in order.counts().items():
            recomputed = 0 if stage.exit else times  # a reversible stage saves nothing inside its blocks
            for total, found, often in zip(self.total, ran[number], (recomputed, times, recomputed), strict=True):
                total.update({path: amount * often for path, amount in found.items()})
        if memory is not None and held is not None:
            memory.storage.saved = held.saved
        return last.tensor(self.tape) if ran else x

    def _part(self, part: Part, x: Symbolic, *others: Symbolic) -> Symbolic:
        """A component, in its residual connection where it has one."""
        tape, component, place = self.tape, part.component, part.place
        tape.prefix, tape.rows = f"{part.path}.", {}
        if isinstance(component, SubLayer):
            y: Any = in_residual(tape, component, part.residual, place, x, *others)
        else:
            y = tape.component("", component, place, x, *others)
        output: Symbolic = y[0] if isinstance(y, tuple) else y
        return output


def _memory(part: Part, memory: Symbolic | None) -> Iterator[Symbolic]:
    """The encoder's output, where a sub-layer reads it."""
    if memory is not None and part.component.reads_memory:
        yield memory
