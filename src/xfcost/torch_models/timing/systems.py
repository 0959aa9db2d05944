"""Ledgers with the seconds of their models on a device: one system alone, or several in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Timing
from xfcost.ledger.modes import Generation
from xfcost.ledger.timing_options import TimingPlan
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.shared.versions import with_versions
from xfcost.torch_models.timing.composed import composed, composed_room, with_distinct_blocks
from xfcost.torch_models.timing.devices import check_device, waiting_clock
from xfcost.torch_models.timing.in_turns import Say, in_turns
from xfcost.torch_models.timing.result import timing_of
from xfcost.torch_models.timing.room import room_for
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
from xfcost.torch_models.timing.turns import REAL, Measured, Meters


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
