"""The memory of a spec's model without torch: one tape runs the programs of its parts, from the input to the head.

Of training it records what autograd saves, each storage once, at the first row that saves it; of inference what is
alive. A block costs what an earlier one did that it began like, so that depth takes no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from xfcost.formulas.component import Component, Number, SubLayer, behind, single_token
from xfcost.ledger.record import Record
from xfcost.ledger.tensors import Type
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.program.residual import in_residual
from xfcost.program.symbolic import Shape, Symbolic
from xfcost.program.tape import Tape, TapeCall
from xfcost.spec.architecture import Architecture, Block, Part, Stage, Stream
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
    held: bool
    """Does a caller hold it while the block runs?"""

    def tensor(self, tape: Tape) -> Symbolic:
        """One like it."""
        storage = tape.storage(self.elements, self.type)
        storage.saved = self.saved
        return Symbolic(tape, self.shape, storage, self.strides, self.offset, self.learns, self.once)


def _state(x: Symbolic, *, held: bool = False) -> _TensorState:
    storage = x.storage
    return _TensorState(
        x.shape, x.strides, x.offset, x.learns, x.once, storage.elements, storage.type, storage.saved or storage.held,
        held,
    )  # fmt: skip


class _ModelTape(Tape):
    """The tape of a model: tensors go on from component to component."""

    def __init__(self, architecture: Architecture, *, gradients: bool) -> None:
        super().__init__(
            batch=architecture.batch, element=BYTES_PER_ELEMENT[architecture.dtype],
            decodes=architecture.mode == "decode", cached=architecture.cached_prefix, gradients=gradients,
        )  # fmt: skip
        self.hands_over = not self.decodes and any(
            _starts_from_encoder(labelled.part.component) for labelled in architecture.parts()
        )
        """Do layers start from the last states of the encoder's?"""
        self.states: list[Sequence[Sequence[Any]]] = []
        """The last states of the encoder's recurrent layers, by direction, in the order in which the layers run."""
        self.taken = 0
        """How many layers have started from one."""

    def hand_over(self, *states: Sequence[Any]) -> None:
        if self.hands_over and not self.taken:  # the encoder's layers
            self.states.append(states)

    def handed_over(self, number: int, shapes: Sequence[Shape]) -> Sequence[Symbolic]:
        """The state of a direction of the encoder's layer that a layer starts from."""
        if self.decodes:
            return [self.past(self.batch, *shape) for shape in shapes]
        states = self.states[self.taken]
        self.taken += number == len(states) - 1
        return states[number]


def training_record(architecture: Architecture) -> Record[TapeCall] | None:
    """Of a forward pass with gradients; None where a reversible stage hands over states of recurrences."""
    running = _ModelRun(architecture, gradients=True)
    has_exit = any(stage.exit for stream in architecture.streams for stage in stream.stages)
    return None if running.tape.hands_over and has_exit else running.record()


def forward_record(architecture: Architecture) -> Record[TapeCall]:
    """Of a forward pass, or a decode step, without gradients. Weights and cache are no part of its changes."""
    return _ModelRun(architecture, gradients=False).record()


def _starts_from_encoder(component: Component) -> bool:
    return component.takes_state and getattr(component, "start", None) == "encoder"


class _ModelRun:
    """A run of a model: who holds a tensor, and how long, is as in `torch_models/build.py`."""

    def __init__(self, architecture: Architecture, *, gradients: bool) -> None:
        self.architecture, self.gradients = architecture, gradients
        self.tape = _ModelTape(architecture, gradients=gradients)
        self.total = self.tape.record

    def record(self) -> Record[TapeCall]:
        """Over all blocks."""
        memory: Symbolic | None = None
        inputs = [self._raw(stream) for stream in self.architecture.running]
        for stream, raw in zip(self.architecture.running, inputs, strict=True):
            memory = self._stream(stream, raw, memory)
        if self.architecture.head is not None and memory is not None:
            self._part(self.architecture.head, memory)
        return self.total

    def _stream(self, stream: Stream, x: Symbolic, memory: Symbolic | None) -> Symbolic:
        for part in stream.embed:
            x = self._part(part, x)
        earlier: list[Symbolic] = []
        reads_earlier = any(part.component.reads_stage for stage in stream.stages for part in stage.enter)
        for stage in stream.stages:
            x = self._stage(stage, x, memory, earlier)
            earlier += [x] if reads_earlier else []
        return x

    def _raw(self, stream: Stream) -> Symbolic:
        """The model's input: pixels by channels, numbers of tokens, or vectors; of a decode step one token."""
        source, tape = stream.input, self.tape
        if isinstance(source, ImageInput | VideoInput):
            return tape.input(source.channels, prod(source.sides), learns=False).transpose(1, 2)
        length = 1 if tape.decodes else source.length - tape.cached
        if isinstance(source, TokenInput):
            return tape.input(length, type_="int64", learns=False)
        return tape.input(length, source.channels, learns=False)

    def _stage(self, stage: Stage, x: Symbolic, memory: Symbolic | None, earlier: list[Symbolic]) -> Symbolic:
        for part in stage.enter:
            number = part.component.reads_stage
            x = self._part(part, x, *([earlier[number - 1]] if number else []))
        if self.tape.hands_over:  # no block begins like another where each has a state of its own
            for index in stage.order:
                x = self._block(stage.blocks[index], x, memory)
            return x
        if stage.exit is not None:
            return self._part(stage.exit, *(self._saved_ends if self.gradients else self._both)(stage, x, memory))
        entering = [x]
        del x  # the first block alone holds what a stage's layers made
        return self._blocks(stage, entering, memory)

    def _blocks(self, stage: Stage, entering: list[Symbolic], memory: Symbolic | None) -> Symbolic:
        """The blocks of a stage; a block that begins like an earlier one isn't run again."""
        State = tuple[_TensorState, bool | None]
        numbers: dict[tuple[int, State], tuple[int, State]] = {}
        ran: list[Record[TapeCall]] = []
        x = entering.pop()

        def state(*, held: bool = False) -> State:
            return _state(x, held=held), None if memory is None else memory.storage.saved

        def step(index: int, before: State) -> tuple[int, State]:
            nonlocal x
            if (index, before) not in numbers:
                if before[0] != _state(x, held=before[0].held):
                    x = before[0].tensor(self.tape)
                if memory is not None:
                    memory.storage.saved = bool(before[1])
                self.tape.record = Record(changes=self.total.changes)
                x = self._block(stage.blocks[index], x, memory)
                numbers[index, before] = len(ran), state()
                ran.append(self.tape.record)
            return numbers[index, before]

        order, (last, memory_saved) = stage.order.mapped(state(held=not (self.gradients or stage.enter)), step)
        self.tape.record = self.total
        for number, times in order.counts().items():
            self.total.add(ran[number], times, saves=stage.exit is None)
        if memory is not None:
            memory.storage.saved = bool(memory_saved)
        return x if last == _state(x, held=last.held) else last.tensor(self.tape)

    def _saved_ends(self, stage: Stage, x: Symbolic, memory: Symbolic | None) -> list[Symbolic]:
        """The two streams at the end of a reversible stage: all that it saves, as its blocks are one function."""
        reads = memory and _state(memory).tensor(self.tape)
        self._blocks(stage, [_state(x).tensor(self.tape)], reads)
        ends = [_state(x)._replace(learns=True, saved=False).tensor(self.tape) for _ in range(2)]
        path = stage.exit.path if stage.exit else ""
        self.tape.save_storages(f"{path}.join", (*ends, *([] if memory is None else [memory])))
        return ends

    def _both(self, stage: Stage, x: Symbolic, memory: Symbolic | None) -> tuple[Symbolic, Symbolic]:
        """The same without gradients, of a few of the blocks: x₁ + f(x₂), x₂ + g(y₁)."""
        first = second = x
        for index, times in stage.order.thinned():
            self.tape.record = Record(changes=self.total.changes)
            f, g = stage.blocks[index].parts
            first = self._part(f, second, *_memory(f, memory), onto=first)
            second = self._part(g, first, *_memory(g, memory), onto=second)
            self.total.add(self.tape.record, times)
        self.tape.record = self.total
        return first, second

    def _block(self, block: Block, x: Symbolic, memory: Symbolic | None) -> Symbolic:
        entered = x.storage if self.gradients else None  # without gradients it is free once nothing reads it
        if entered is not None:
            entered.enters_block = True
        for part in block.parts:
            x = self._part(part, x, *_memory(part, memory))
        if entered is not None:
            entered.enters_block = False
        return x

    def _part(self, part: Part, x: Symbolic, *others: Symbolic, onto: Symbolic | None = None) -> Symbolic:
        """A component, in its residual connection where it has one."""
        tape, component, place = self.tape, part.component, part.place
        tape.prefix, tape.rows, tape.lora = f"{part.path}.", {}, place.lora
        place = behind(place, self.architecture.cached_prefix)
        if tape.decodes:
            place = single_token(place) if component.token_wise else place
            others = ()
            if place.memory is not None and component.reads_memory:  # what it reads of the memory is in its cache
                others = (tape.past(tape.batch, place.memory.total, place.memory_dim),)
        if isinstance(component, SubLayer):
            y: Any = in_residual(tape, component, part.residual, place, x, *others, onto=onto)
        else:
            y = tape.component("", component, place, x, *others)
        output: Symbolic = y[0] if isinstance(y, tuple) else y
        return output


def _memory(part: Part, memory: Symbolic | None) -> Iterator[Symbolic]:
    """The encoder's output, where a sub-layer reads it."""
    if memory is not None and part.component.reads_memory:
        yield memory
