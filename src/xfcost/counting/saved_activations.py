"""Saved activations in closed form: the programs of a model, followed block by block.

Each storage counts once, at the first row that saves it. A block costs what an earlier one did that it began like, so
that depth takes no time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

from xfcost.formulas.component import Mixer, Number, Place, SubLayer
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.tensors import Type, width_of
from xfcost.program.residual import in_residual
from xfcost.program.symbolic import Shape, Symbolic, contiguous_strides
from xfcost.program.symbolic import Storage as Memory
from xfcost.program.tape import Program, Tape
from xfcost.spec.architecture import Architecture, Part, Stage, Stream
from xfcost.spec.grammar import ImageInput, TokenInput, VideoInput


class StorageBytes(NamedTuple):
    """A storage between two components."""

    elements: int
    """Of one sample."""
    width: int
    """Bytes of an element."""
    gradient: bool
    saved: bool = False
    by_channel: bool = False
    """Are its tokens those of a grid that lies channel by channel?"""
    cropped: bool = False
    """Has it padding behind each sample's tokens?"""


class Storage:
    """A storage of activations, and whether autograd has saved it."""

    __slots__ = ("by_channel", "cropped", "elements", "gradient", "once", "saved", "width")

    def __init__(self, held: StorageBytes, *, once: bool = False) -> None:
        self.elements, self.width, self.gradient, self.saved, self.by_channel, self.cropped = held
        self.once = once
        """Is it the same for all samples?"""

    def bytes_first_saved(self, batch: int) -> int:
        """Its bytes, where nothing has saved it before; it is saved now."""
        saved, self.saved = self.saved, True
        return 0 if saved else self.elements * self.width * (1 if self.once else batch)

    @property
    def held(self) -> StorageBytes:
        """What the next component needs to know of it."""
        return StorageBytes(self.elements, self.width, self.gradient, self.saved, self.by_channel, self.cropped)


class _ComponentTape(Tape):
    """Follows a component's program; its storages are those between components."""

    def __init__(self, states: HandedStates, batch: int, element: int) -> None:
        super().__init__(batch=batch, element=element)
        self.states = states
        self.left: tuple[Sequence[Symbolic], ...] = ()
        """The last state of each direction of a recurrent layer."""
        self.storages: list[tuple[Storage, Memory]] = []

    def of_storage(self, storage: Storage, *sizes: Number, type_: Type = "model") -> Symbolic:
        """A tensor (B, …) in a storage; of a type that isn't the model's where that is given."""
        memory = next((memory for known, memory in self.storages if known is storage), None)
        if memory is None:
            floats: Type = "model" if storage.width == self.element else "float32"
            kind = floats if type_ == "model" else type_
            memory = Memory(storage.elements * (1 if storage.once else self.batch), kind, saved=storage.saved)
            self.storages.append((storage, memory))
        shape = (self.batch, *sizes)
        strides = contiguous_strides(shape)
        if storage.by_channel:
            tokens, width = sizes
            strides = (tokens * width, 1, tokens)
        elif storage.cropped:
            strides = (storage.elements, *strides[1:])
        return Symbolic(self, shape, memory, strides, learns=storage.gradient, once=storage.once, raw=True)

    def given(self, component: Program, place: Place, x: Storage, memory: Storage | None) -> Iterator[Symbolic]:
        """What comes into a component outside blocks: its input, and an earlier stage's output."""
        yield self.of_storage(x, *component.entering(place), type_=component.entering_type)
        if memory is not None and place.memory is not None:
            yield self.of_storage(memory, place.memory.total, place.memory_dim)

    def storage_of(self, tensor: Symbolic) -> Storage:
        """The storage of a tensor (B, N, D), with what is known of it now."""
        known = next((storage for storage, memory in self.storages if memory is tensor.storage), None)
        for storage, memory in self.storages:
            storage.saved = memory.saved
        if known is not None:
            return known
        memory, width = tensor.storage, width_of(tensor.storage.type, self.element)
        by_channel = tensor.strides[-1] > tensor.strides[-2]
        cropped = not by_channel and self.batch > 1 and tensor.strides[0] > prod(tensor.shape[1:])
        elements = memory.elements // (1 if tensor.once else self.batch)
        made = StorageBytes(elements, width, tensor.learns, memory.saved, by_channel, cropped)
        self.storages.append((storage := Storage(made, once=tensor.once), memory))
        return storage

    def hand_over(self, *states: Sequence[Any]) -> None:
        self.left = states

    def handed_over(self, number: int, shapes: Sequence[Shape]) -> Sequence[Symbolic]:
        return [
            Symbolic(self, (self.batch, *shape), self.of_storage(storage, 1, 1).storage)
            for shape, storage in zip(shapes, self.states.taken(number), strict=True)
        ]


class HandedStates:
    """The last states of the encoder's recurrent layers, in the order in which the layers run."""

    def __init__(self, architecture: Architecture) -> None:
        self.any = any(_starts_from_encoder(labelled.part.component) for labelled in architecture.parts())
        self._layers: deque[list[list[Storage]]] = deque()

    def separately(self, stage: Stage) -> Iterator[Part]:
        """The parts of all blocks as they run: no block begins like another where each has a state of its own."""
        for index in stage.order:
            yield from stage.blocks[index].parts

    def taken(self, number: int) -> list[Storage]:
        """The state of a direction of the encoder's layer that a layer starts from; the last one takes it away."""
        states = self._layers[0]
        if number == len(states) - 1:
            self._layers.popleft()
        return states[number]

    def keep(self, tape: _ComponentTape) -> None:
        """Keep the last states that a recurrent layer has left."""
        if self.any and tape.left:
            self._layers.append([[tape.storage_of(one) for one in state] for state in tape.left])


def _starts_from_encoder(component: Any) -> bool:
    return isinstance(component, Mixer) and component.takes_state and getattr(component, "start", None) == "encoder"


class SavedActivations(NamedTuple):
    """By the path of a row: saved bytes of all its blocks, and bytes of activations that all its blocks move."""

    saved: dict[str, int]
    operands: dict[str, int]
    masks: dict[str, int]
    """Those of the saved bytes that are masks, the same for all samples and heads."""


def saved_activations(ledger: Ledger, architecture: Architecture) -> SavedActivations | None:
    """The saved activations of a training step; None where a reversible stage hands over states of recurrences."""
    following = _Following(ledger, architecture)
    hands_over = following.states.any and any(stage.exit for one in architecture.streams for stage in one.stages)
    return None if hands_over else following.found()


class _State(NamedTuple):
    """The tensors with which a block begins."""

    stream: StorageBytes
    memory: StorageBytes | None


def _state(stream: Storage, memory: Storage | None) -> _State:
    return _State(stream.held, None if memory is None else memory.held)


class _RowBytes(NamedTuple):
    """Bytes by row."""

    saved: Counter[str]
    operands: Counter[str]
    masks: Counter[str]


class _Following:
    """The tensors of a model, followed from the input to the head."""

    def __init__(self, ledger: Ledger, architecture: Architecture) -> None:
        self.architecture = architecture
        self.batch, self.element = architecture.batch, ledger.bytes_per_element
        self.states = HandedStates(architecture)
        self.saved: Counter[str] = Counter({row.path: 0 for row in ledger.rows})
        self.operands: Counter[str] = Counter(self.saved)
        self.masks: Counter[str] = Counter(self.saved)

    def found(self) -> SavedActivations:
        """By row, over all blocks."""
        memory: Storage | None = None
        for stream in self.architecture.streams:
            memory = self._stream(stream, memory)
        if self.architecture.head is not None and memory is not None:
            self._part(self.architecture.head, memory, None)
        return SavedActivations(dict(self.saved), dict(self.operands), dict(self.masks))

    def _stream(self, stream: Stream, memory: Storage | None) -> Storage:
        x = Storage(self._raw(stream))
        for part in stream.embed:
            x = self._part(part, x, None)
        earlier: list[Storage] = []
        for stage in stream.stages:
            x = self._stage(stage, x, memory, earlier)
            earlier.append(x)
        return x

    def _raw(self, stream: Stream) -> StorageBytes:
        source = stream.input
        if isinstance(source, ImageInput | VideoInput):
            elements = source.channels * prod(source.sides)
            return StorageBytes(elements, self.element, gradient=False, by_channel=True)
        if isinstance(source, TokenInput):
            return StorageBytes(source.length, width_of("int64", self.element), gradient=False)
        return StorageBytes(source.length * source.channels, self.element, gradient=False)

    def _stage(self, stage: Stage, x: Storage, memory: Storage | None, earlier: list[Storage]) -> Storage:
        for part in stage.enter:
            number = getattr(part.component, "reads_stage", None)
            x = self._part(part, x, earlier[number - 1] if number else None)
        if self.states.any:
            return reduce(lambda x, part: self._part(part, x, memory), self.states.separately(stage), x)
        if stage.exit is None:
            return self._blocks(stage, x, memory)
        self._blocks(stage, Storage(x.held), memory and Storage(memory.held))
        streams = [Storage(x.held._replace(gradient=True, saved=False)) for _ in range(2)]
        return self._part(stage.exit, streams[0], memory, second=streams[1])

    def _blocks(self, stage: Stage, x: Storage, memory: Storage | None) -> Storage:
        """The blocks of a stage; a block that begins like an earlier one isn't followed again."""
        numbers: dict[tuple[int, _State], tuple[int, _State]] = {}
        ran: list[_RowBytes] = []

        def step(index: int, state: _State) -> tuple[int, _State]:
            if (index, state) not in numbers:
                after = Storage(state.stream) if ran else x  # the first one marks its input as saved
                reads = None if state.memory is None else Storage(state.memory)
                costs = _RowBytes(Counter(), Counter(), Counter())
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
            self._add(ran[number].masks, self.masks, recomputed)
        if memory is not None and held is not None:
            memory.saved = held.saved
        return Storage(stream) if ran else x

    def _part(self, part: Part, x: Storage, memory: Storage | None, second: Storage | None = None) -> Storage:
        """A component that runs once."""
        return self._run(_RowBytes(self.saved, self.operands, self.masks), part, x, memory, second)

    def _run(
        self, costs: _RowBytes, part: Part, x: Storage, memory: Storage | None, second: Storage | None = None
    ) -> Storage:
        tape = _ComponentTape(self.states, self.batch, self.element)
        component: Any = part.component
        place = part.place
        if isinstance(component, SubLayer):
            inputs = [tape.of_storage(x, place.grid.total, place.dim)]
            if component.reads_memory and memory is not None and place.memory is not None:
                inputs.append(tape.of_storage(memory, place.memory.total, place.memory_dim))
            y: Any = in_residual(tape, component, part.residual, place, *inputs)
        elif second is None:
            y = tape.component("", component, place, *tape.given(component, place, x, memory))
        else:
            inputs = [tape.of_storage(one, place.grid.total, place.dim) for one in (x, second)]
            kept = (x, second, *(() if memory is None else (memory,)))  # by the blocks, which all are one function
            tape.saved["join"] += sum(one.bytes_first_saved(self.batch) for one in kept)
            y = tape.component("", component, place, *inputs)
        for found, to in zip((tape.saved, tape.operands, tape.masks), costs, strict=True):
            self._add({f"{part.path}.{name}": amount for name, amount in found.items()}, to, 1)
        output = tape.storage_of(y[0] if isinstance(y, tuple) else y)
        self.states.keep(tape)
        return output

    @staticmethod
    def _add(found: Mapping[str, int], to: Counter[str], times: int) -> None:
        for path, amount in found.items():
            to[path] += amount * times
