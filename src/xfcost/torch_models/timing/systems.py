"""Ledgers with the seconds of their models on a device: one system alone, or several in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple, Protocol

import msgspec

from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Timing
from xfcost.ledger.modes import Generation
from xfcost.ledger.timing_options import TimingPlan
from xfcost.spec.architecture import Architecture, Stage
from xfcost.spec.block_order import BlockOrder
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.addressable import batch_statistics, check_addressable, within_torch
from xfcost.torch_models.memory.peak import bytes_to_run, check_room, limit_on, peak_bytes
from xfcost.torch_models.memory.training_step import peak_of_steps
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.shared.versions import with_versions
from xfcost.torch_models.timing.devices import check_device, waiting_clock
from xfcost.torch_models.timing.refusals import on_device
from xfcost.torch_models.timing.rows import generation_bytes, row_bytes, training_bytes
from xfcost.torch_models.timing.subjects import (
    DECODE,
    PREFILL,
    UPDATE,
    Generated,
    Ready,
    forward,
    generation,
    training_step,
)
from xfcost.torch_models.timing.turns import REAL, Measured, Meters, take_turns, timing_of

Say = Callable[[str], None]


class Entrant(Protocol):
    """What is timed, alone or with others."""

    @property
    def name(self) -> str:
        """The system's name."""

    @property
    def dtype(self) -> str:
        """Of its tensors."""

    @property
    def needed(self) -> int:
        """The bytes that must be free."""

    @property
    def what(self) -> str:
        """What is run: `one forward`."""

    def ready(self) -> AbstractContextManager[Ready]:
        """It is built on the device; at the end it is gone."""

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        """Its ledger with what was measured."""


def in_turns(entrants: Sequence[Entrant], device: str, plan: TimingPlan, say: Say, meters: Meters) -> list[Ledger]:
    """The ledgers with measured seconds.

    Raises:
        DeviceError: the device fails, one does not fit, a kernel is missing.
    """
    for one in entrants:
        check_room(one.needed, device, one.name, one.what)
    limit, together = limit_on(device), sum(one.needed for one in entrants)
    if len(entrants) > 1 and together > limit.left:
        say(
            f"timed one after the other, not in turns: all at once would need {together:,} bytes, and {limit.name} "
            f"leaves {limit.left:,}"
        )
        return [ledger for one in entrants for ledger in _timed_group([one], device, plan, say, meters)]
    return _timed_group(entrants, device, plan, say, meters)


def _timed_group(entrants: Sequence[Entrant], device: str, plan: TimingPlan, say: Say, meters: Meters) -> list[Ledger]:
    """Entrants that are all held at once."""
    with ExitStack() as held:
        ready = []
        for one in entrants:
            say(f"building {one.name} on {device} …")
            with on_device(one.name, device, one.dtype):
                ready.append(held.enter_context(one.ready()))
        names = " and ".join(one.name for one in entrants)
        say(f"timing {names} on {device}{' in turns' if len(entrants) > 1 else ''} …")
        with on_device(names, device, entrants[0].dtype):
            found = take_turns([one.subject for one in ready], device, plan, meters)
            peaks = [None if plan.composed else one.peak() for one in ready]
    return [one.ledger(measured, peak) for one, measured, peak in zip(entrants, found, peaks, strict=True)]


class Room(NamedTuple):
    """Predicted memory, and the bytes of inputs and outputs of each row over all its blocks."""

    predicted: int | None
    """Peak of live tensors in one call; None of a composed run."""
    needed: int
    """Bytes that must be free, of a generation for both phases."""
    what: str
    """What is run."""
    row_bytes: dict[str, int]
    """Without the weights that a forward reads; in decode steps of a generation with them."""


def room_for(architecture: Architecture, ledger: Ledger, step: Architecture | None, device: str) -> Room:
    """The memory of what the ledger's mode runs.

    Raises:
        DeviceError: a tensor is too large for torch, or a batch norm has one value per channel.
    """
    check_addressable(ledger)
    name = ledger.metadata.name
    with within_torch(name):
        if ledger.training is not None:
            with batch_statistics(name):
                return _of_training(architecture, ledger.training.step.optimizer, device)
        with no_compiler():
            first = _of_forward(architecture, device)
            text = ledger.generation
            if step is None or text is None:
                return first
            positions = range(text.prompt, text.prompt + text.new_tokens - 1)
            held = generation_bytes(first.row_bytes, step, positions)
            return first._replace(needed=first.needed + _of_forward(step, device).needed, row_bytes=held)


def _of_forward(architecture: Architecture, device: str) -> Room:
    on_meta = build(architecture)
    predicted = peak_bytes(on_meta.model, on_meta.inputs)
    return Room(predicted, bytes_to_run(predicted, device), "one forward", row_bytes(on_meta))


def _of_training(architecture: Architecture, optimizer: str, device: str) -> Room:
    predicted = peak_of_steps(build(architecture), optimizer, lists=device.startswith("cuda"))
    held = training_bytes(architecture, optimizer)
    return Room(predicted, bytes_to_run(predicted, device), "a step of training", held)


def with_distinct_blocks(architecture: Architecture, ledger: Ledger) -> Architecture:
    """The architecture with every block once.

    Raises:
        UsageError: the mode runs more than one pass.
    """
    if ledger.training is not None or ledger.generation is not None:
        raise UsageError(f"--composed: of --mode {ledger.metadata.mode}; a forward or a decode step is composed")
    streams = tuple(
        msgspec.structs.replace(stream, stages=tuple(map(_once, stream.stages))) for stream in architecture.streams
    )
    return msgspec.structs.replace(architecture, streams=streams)


def _once(stage: Stage) -> Stage:
    blocks = tuple(msgspec.structs.replace(block, times=1) for block in stage.blocks)
    return msgspec.structs.replace(stage, blocks=blocks, order=BlockOrder(tuple(dict.fromkeys(stage.order))))


def composed(measured: Measured, ledger: Ledger) -> Measured:
    """What was measured of the distinct blocks -> what all blocks take.

    What stands between the rows grows as the rows do.
    """
    times = _times(ledger)
    rows = {path: tuple(spent * times.get(path, 1) for spent in each) for path, each in measured.rows.items()}
    once, whole = (math.fsum(math.fsum(each) for each in one.values()) for one in (measured.rows, rows))
    factor = whole / once if once else 1.0
    phases = {name: tuple(spent * factor for spent in spans) for name, spans in measured.phases.items()}
    return measured._replace(rows=rows, phases=phases)


def composed_room(room: Room, ledger: Ledger) -> Room:
    """The bytes of rows over all blocks; no peak, which was that of the distinct ones."""
    times = _times(ledger)
    row_bytes = {path: held * times.get(path, 1) for path, held in room.row_bytes.items()}
    return room._replace(row_bytes=row_bytes, predicted=None)


def _times(ledger: Ledger) -> dict[str, int]:
    return {row.path: row.times for row in ledger.rows}


class System(NamedTuple):
    """What is timed: an architecture at a run, its counted ledger, and of a generation the decode step."""

    architecture: Architecture
    ledger: Ledger
    step: Architecture | None = None
    """The last decode step of a generation."""


def timed_in_turns(
    systems: Sequence[System], device: str, plan: TimingPlan, say: Say, meters: Meters = REAL
) -> list[Ledger]:
    """The systems' ledgers with measured seconds, timed in turns; one after the other where not all fit at once.

    Raises:
        DeviceError: the device does not exist or fails, a model does not fit, a kernel is missing.
    """
    check_device(device)
    return in_turns([SystemOnDevice(one, device, plan, meters) for one in systems], device, plan, say, meters)


class SystemOnDevice:
    """A system of a spec, as it is timed on a device, alone or in turns with others."""

    def __init__(self, system: System, device: str, plan: TimingPlan, meters: Meters = REAL) -> None:
        self.device, self.plan, self.meters = device, plan, meters
        if plan.composed:
            system = system._replace(architecture=with_distinct_blocks(system.architecture, system.ledger))
        self.system = system
        self._room = room_for(system.architecture, system.ledger, system.step, device)
        self.name, self.dtype = system.ledger.metadata.name, system.ledger.metadata.dtype
        self.needed, self.what = self._room.needed, self._room.what

    @contextmanager
    def ready(self) -> Iterator[Ready]:
        """The system as its mode runs it."""
        yield self._ready()

    def _ready(self) -> Ready:
        system, device, compile_ = self.system, self.device, self.plan.compile
        clock = waiting_clock(device, self.meters.clock)
        text, training = system.ledger.generation, system.ledger.training
        if training is not None:
            return training_step(system.architecture, training.step.optimizer, device, clock, compile_=compile_)
        if text is None:
            return forward(system.architecture, device, clock, compile_=compile_)
        if system.step is None:
            raise TypeError("a generation is timed with its decode step")
        positions = range(text.prompt, text.prompt + text.new_tokens - 1)
        return generation(system.architecture, Generated(system.step, positions), device, clock, compile_=compile_)

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        """The system's ledger with what was measured."""
        counted, room = self.system.ledger, self._room
        if self.plan.composed:
            measured, room = composed(measured, counted), composed_room(room, counted)
        timing = timing_of(measured, self.device, peak, room.predicted, self.plan)
        seconds = measured.row_seconds()
        update = seconds.pop(UPDATE, None)
        ledger = with_seconds(with_versions(counted), seconds, room.row_bytes, timing, update)
        return ledger if ledger.generation is None else _with_phases(ledger, ledger.generation, timing)


def _with_phases(ledger: Ledger, text: Generation, timing: Timing) -> Ledger:
    phases = {phase.name: phase.seconds for phase in timing.phases}
    text = msgspec.structs.replace(text, prefill_seconds=phases[PREFILL], decode_seconds=phases.get(DECODE, 0.0))
    return msgspec.structs.replace(ledger, generation=text)
