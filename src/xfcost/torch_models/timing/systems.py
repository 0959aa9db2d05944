"""Ledgers with the seconds of their models on a device: one system alone, or several in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Timing
from xfcost.ledger.modes import Generation
from xfcost.ledger.timing_options import TimingPlan
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.memory.peak import check_room, limit_on
from xfcost.torch_models.shared.versions import with_versions
from xfcost.torch_models.timing.composed import composed, composed_room, with_distinct_blocks
from xfcost.torch_models.timing.devices import check_device, waiting_clock
from xfcost.torch_models.timing.refusals import on_device
from xfcost.torch_models.timing.result import timing_of
from xfcost.torch_models.timing.room import Room, room_for
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
from xfcost.torch_models.timing.turns import REAL, Measured, Meters, take_turns

Say = Callable[[str], None]


class System(NamedTuple):
    """What is timed: an architecture at a run, its counted ledger, and of a generation the decode step."""

    architecture: Architecture
    ledger: Ledger
    step: Architecture | None = None
    """The last decode step of a generation."""

    @property
    def name(self) -> str:
        """The system's name."""
        return self.ledger.metadata.name


def timed(system: System, device: str, plan: TimingPlan, say: Say, meters: Meters = REAL) -> Ledger:
    """The system's ledger with the measured seconds of its torch model on `device`, in total and by row.

    Raises:
        DeviceError: as `timed_in_turns`.
    """
    return timed_in_turns([system], device, plan, say, meters)[0]


def timed_in_turns(
    systems: Sequence[System], device: str, plan: TimingPlan, say: Say, meters: Meters = REAL
) -> list[Ledger]:
    """The systems' ledgers with measured seconds, timed in turns; one after the other where not all fit at once.

    Raises:
        DeviceError: the device does not exist or fails, a model does not fit, a kernel is missing.
    """
    check_device(device)
    if plan.composed:
        systems = [one._replace(architecture=with_distinct_blocks(one.architecture, one.ledger)) for one in systems]
    rooms = [room_for(system.architecture, system.ledger, system.step, device) for system in systems]
    for system, room in zip(systems, rooms, strict=True):
        check_room(room.needed, device, system.name, room.what)
    both = list(zip(systems, rooms, strict=True))
    limit = limit_on(device)
    together = sum(room.needed for room in rooms)
    if len(systems) > 1 and together > limit.left:
        say(
            f"timed one after the other, not in turns: all at once would need {together:,} bytes, and {limit.name} "
            f"leaves {limit.left:,}"
        )
        return [ledger for one in both for ledger in _timed_group([one], device, plan, say, meters)]
    return _timed_group(both, device, plan, say, meters)


def _timed_group(
    systems: Sequence[tuple[System, Room]], device: str, plan: TimingPlan, say: Say, meters: Meters
) -> list[Ledger]:
    """Systems that are all held at once."""
    ready = []
    for system, _ in systems:
        say(f"building {system.name} on {device} …")
        with on_device(system.name, device, system.ledger.metadata.dtype):
            ready.append(_ready(system, device, plan, meters))
    names = " and ".join(system.name for system, _ in systems)
    say(f"timing {names} on {device}{' in turns' if len(systems) > 1 else ''} …")
    with on_device(names, device, systems[0][0].ledger.metadata.dtype):
        measured = take_turns([one.subject for one in ready], device, plan, meters)
        return [
            _ledger(system, room, one, found, device, plan)
            for (system, room), one, found in zip(systems, ready, measured, strict=True)
        ]


def _ready(system: System, device: str, plan: TimingPlan, meters: Meters) -> Ready:
    """The system as its mode runs it."""
    clock, compile_ = waiting_clock(device, meters.clock), plan.compile
    text, training = system.ledger.generation, system.ledger.training
    if training is not None:
        return training_step(system.architecture, training.step.optimizer, device, clock, compile_=compile_)
    if text is None:
        return forward(system.architecture, device, clock, compile_=compile_)
    if system.step is None:
        raise TypeError("a generation is timed with its decode step")
    positions = range(text.prompt, text.prompt + text.new_tokens - 1)
    return generation(system.architecture, Generated(system.step, positions), device, clock, compile_=compile_)


def _ledger(system: System, room: Room, ready: Ready, measured: Measured, device: str, plan: TimingPlan) -> Ledger:
    """The system's ledger with what was measured."""
    if plan.composed:
        measured, room = composed(measured, system.ledger), composed_room(room, system.ledger)
    peak = None if plan.composed else ready.peak()
    timing = timing_of(measured, device, peak, room.predicted, plan)
    timing = msgspec.structs.replace(timing, process_memory=room.process)
    seconds = measured.row_seconds()
    update = seconds.pop(UPDATE, None)
    ledger = with_seconds(with_versions(system.ledger), seconds, room.row_bytes, timing, update)
    return ledger if ledger.generation is None else _with_phases(ledger, ledger.generation, timing)


def _with_phases(ledger: Ledger, text: Generation, timing: Timing) -> Ledger:
    phases = {phase.name: phase.seconds for phase in timing.phases}
    text = msgspec.structs.replace(text, prefill_seconds=phases[PREFILL], decode_seconds=phases.get(DECODE, 0.0))
    return msgspec.structs.replace(ledger, generation=text)
