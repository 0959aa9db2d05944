"""Whatever runs on a device, specs and modules, timed in turns; and the systems of specs.

All are held at once; where they do not fit together, they are timed one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec
import torch

from xfcost.counting.decoding import operands_of_steps
from xfcost.counting.model_record import forward_record
from xfcost.ledger.errors import UsageError
from xfcost.ledger.files import Say
from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_plan import USUAL, TimingPlan
from xfcost.ledger.units import TF32
from xfcost.spec.architecture import Architecture, BlockOrder, Stage
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import (
    FOR_SPECS,
    bytes_to_run,
    check_room,
    limit_on,
    peak_bytes,
    peak_on,
)
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.shared.private_torch import no_compiler
from xfcost.torch_models.timing.devices import Clock, on_device, waiting_clock
from xfcost.torch_models.timing.kernels import RowSeconds, replayed
from xfcost.torch_models.timing.rows import kernel_seconds, row_seconds, training_bytes
from xfcost.torch_models.timing.turns import REAL, Measured, Meters, Subject, take_turns, timing_of

PREFILL: Final = "prefill"
DECODE: Final = "decode"


def passes(
    first: Architecture, step: Architecture | None, positions: Sequence[int], device: str, clock: Clock, *,
    compile_: bool,
) -> Subject:  # fmt: skip
    """A forward without gradients; with a `step` a prefill, then all decode steps, of tokens at `positions`.

    The rows of the two phases are apart. A compiled model has no operations apart; its kernels are no row's.
    """
    phase = "" if step is None else PREFILL
    lives = {phase: build(first, device)}
    calls = {phase: _call_of(lives[phase], compile_=compile_)}
    if positions and step is not None:
        live = lives[DECODE] = build(step, device)
        one = _call_of(live, compile_=compile_)

        def steps() -> None:
            for position in positions:
                set_position(live.model, position)
                one()

        calls[DECODE] = steps

    def rows() -> RowSeconds:
        if device.startswith("cuda"):
            ranged = {} if compile_ else lives
            found = {phase: kernel_seconds(ranged.get(phase), call, device) for phase, call in calls.items()}
        else:
            found = {phase: RowSeconds(row_seconds(lives[phase], call, clock)) for phase, call in calls.items()}
        launches = [one.launches for one in found.values() if one.launches is not None]
        return RowSeconds(
            {f"{phase}.{path}".lstrip("."): each for phase, one in found.items() for path, each in one.rows.items()},
            copies=sum(one.copies for one in found.values()),
            others=sum(one.others for one in found.values()),
            launches=sum(launches) if launches else None,
        )

    model, inputs = lives[phase].model, lives[phase].inputs
    seen = None if compile_ and not device.startswith("cuda") else rows
    return Subject(calls, seen, lambda: peak_on(device, lambda: model(*inputs), model, inputs))


def training_step(architecture: Architecture, optimizer: str, device: str, clock: Clock, *, compile_: bool) -> Subject:
    """Forward, backward, update by torch's optimizer; a row's seconds are those of its forward and its backward."""
    live, on_cuda = build(architecture, device), device.startswith("cuda")
    stepping = Stepping(live, optimizer, lists=on_cuda)
    if compile_:
        stepping.call = torch.compile(stepping.model)

    def rows() -> RowSeconds:
        if on_cuda:
            return kernel_seconds(None if compile_ else live, stepping, device)
        seconds = row_seconds(live, stepping.forward, clock, backward=True)
        began = clock()
        stepping.update()
        return RowSeconds(seconds, clock() - began)

    def peak() -> int:
        if not on_cuda:
            stepping.call = stepping.model
        return stepping.peak_on(device)

    return Subject({"": stepping}, None if compile_ and not on_cuda else rows, peak)


def _call_of(live: BuiltModel, *, compile_: bool) -> Callable[[], object]:
    return torch.no_grad()(partial(torch.compile(live.model) if compile_ else live.model, *live.inputs))


class OnDevice(Protocol):
    """What runs on a device, timed alone or with others."""

    name: str
    dtype: str
    """Of its tensors."""
    needed: int
    """The bytes that must be free."""
    predicted: int | None
    """Found on `meta`."""
    what: str
    """What is run: `one forward`."""
    mend: str
    """What to do where it does not fit."""

    def ready(self) -> AbstractContextManager[Subject]:
        """It is built on the device; at the end it is gone."""

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        """Its ledger with what was measured."""


def in_turns(entrants: Sequence[OnDevice], device: str, plan: TimingPlan, say: Say, meters: Meters) -> list[Ledger]:
    """The ledgers with measured seconds."""
    found = measured_in_turns(entrants, device, plan, say, meters)
    return [one.ledger(*measured) for one, measured in zip(entrants, found, strict=True)]


def measured_in_turns(
    entrants: Sequence[OnDevice], device: str, plan: TimingPlan, say: Say, meters: Meters
) -> list[tuple[Measured, int | None]]:
    """What was measured of each, and its peak bytes; none of composed runs.

    Raises:
        DeviceError: the device fails, one does not fit, a kernel is missing.
    """
    for one in entrants:
        check_room(one.needed, device, one.name, one.what, one.mend)
    limit, together = limit_on(device), sum(one.needed for one in entrants)
    if len(entrants) > 1 and together > limit.left:
        say(
            f"timed one after the other, not in turns: all at once would need {together:,} bytes, and {limit.name} "
            f"leaves {limit.left:,}"
        )
        return [found for one in entrants for found in _measured_at_once([one], device, plan, say, meters)]
    return _measured_at_once(entrants, device, plan, say, meters)


def _measured_at_once(
    entrants: Sequence[OnDevice], device: str, plan: TimingPlan, say: Say, meters: Meters
) -> list[tuple[Measured, int | None]]:
    with ExitStack() as held:
        ready = []
        for one in entrants:
            say(f"building {one.name} on {device} …")
            with on_device(one.name, device, one.dtype):
                ready.append(held.enter_context(one.ready()))
        names = " and ".join(one.name for one in entrants)
        say(f"timing {names} on {device}{' in turns' if len(entrants) > 1 else ''} …")
        dtype = TF32 if any(one.dtype == TF32 for one in entrants) else entrants[0].dtype
        with on_device(names, device, dtype):
            found = take_turns(ready, device, plan, meters)
            peaks = [None if plan.composed else one.peak() for one in ready]
            if plan.cuda_graph:  # last, because a capture that fails can leave the GPU's memory taken
                graphs = [replayed(one.calls.values(), device) for one in ready]
                found = [each._replace(cuda_graph=one) for each, one in zip(found, graphs, strict=True)]
            return list(zip(found, peaks, strict=True))


class TimedSystem(NamedTuple):
    """What is timed: an architecture at a run, its counted ledger, and of a generation the decode step."""

    architecture: Architecture
    ledger: Ledger
    step_at: Callable[[int], Architecture] | None = None
    """The decode step of a generation at so many tokens; without it the prefill runs alone."""

    @property
    def step(self) -> Architecture | None:
        """The last decode step; of one new token, that at the prompt."""
        text = self.ledger.generation
        return None if self.step_at is None or text is None else self.step_at(text.prompt + max(text.new_tokens - 1, 0))

    @property
    def positions(self) -> range:
        """The positions of the tokens of a generation's decode steps."""
        text = self.ledger.generation
        return range(text.prompt, text.prompt + text.new_tokens - 1) if text is not None else range(0)


class SystemOnDevice:
    """A system of a spec on a device: its memory is predicted on `meta` before anything is allocated.

    Raises:
        DeviceError: a tensor is too large for torch, or a batch norm has one value per channel.
        UsageError: a mode that runs more than one pass is to be composed, or timed in one lane.
    """

    def __init__(self, system: TimedSystem, device: str, plan: TimingPlan = USUAL, meters: Meters = REAL) -> None:
        self.device, self.plan, self.meters, self.mend = device, plan, meters, FOR_SPECS
        if plan.lane != "wall" and system.step_at is not None:
            raise UsageError(
                f"--lane {plan.lane}: does not support --mode generate, which is a prefill and decode steps; give "
                "--mode prefill or decode, or leave --lane out"
            )
        if plan.composed:
            system = system._replace(architecture=with_distinct_blocks(system.architecture, system.ledger))
        self.system, self.what = system, "one forward"
        self.name, self.dtype = system.ledger.metadata.name, system.ledger.metadata.dtype
        self.predicted: int | None
        self.row_bytes: Mapping[str, int]
        """Of inputs and outputs, over all blocks, without the weights that a forward reads; in decode steps of a
        generation with them."""
        with within_torch(system.ledger), no_compiler():
            live = build(system.architecture)
            if system.ledger.training is not None:
                self.what, optimizer = "a step of training", system.ledger.training.step.optimizer
                self.predicted = Stepping(live, optimizer, lists=device.startswith("cuda")).peak()
                self.row_bytes = training_bytes(system.architecture, optimizer)
            else:
                self.predicted = peak_bytes(live.model, live.inputs)
                self.row_bytes = forward_record(system.architecture).operands
            self.needed = bytes_to_run(self.predicted, device)
            if (last := system.step) is not None and system.step_at is not None:
                step, steps = build(last), system.positions
                self.needed += bytes_to_run(peak_bytes(step.model, step.inputs), device)
                decode = operands_of_steps(system.step_at, steps.start + 1, steps.stop)
                self.row_bytes = {f"{PREFILL}.{path}": held for path, held in self.row_bytes.items()}
                self.row_bytes |= {f"{DECODE}.{path}": held for path, held in decode.items()}

    @contextmanager
    def ready(self) -> Iterator[Subject]:
        system, device, compile_ = self.system, self.device, self.plan.compile
        clock = waiting_clock(device, self.meters.clock)
        training = system.ledger.training
        if training is not None:
            yield training_step(system.architecture, training.step.optimizer, device, clock, compile_=compile_)
        else:
            yield passes(system.architecture, system.step, system.positions, device, clock, compile_=compile_)

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        counted, held, predicted = self.system.ledger, self.row_bytes, self.predicted
        if self.plan.composed:  # the peak was that of the distinct blocks
            times = {row.path: row.times for row in counted.rows}
            measured, predicted = composed(measured, times), None
            held = {path: nbytes * times.get(path, 1) for path, nbytes in held.items()}
        timing = timing_of(measured, self.device, peak, predicted, self.plan)
        ledger = with_seconds(
            counted.run_with("torch", "fvcore"), measured.row_seconds(), held, timing, measured.update
        )
        if ledger.generation is None:
            return ledger
        phases = {phase.name: phase.seconds for phase in timing.phases}
        text = msgspec.structs.replace(
            ledger.generation, prefill_seconds=phases[PREFILL], decode_seconds=phases.get(DECODE, 0.0)
        )
        return msgspec.structs.replace(ledger, generation=text)


# ── a model that is too large to hold: its distinct blocks are timed, and count as often as they run ──


def with_distinct_blocks(architecture: Architecture, ledger: Ledger) -> Architecture:
    """The architecture with every block once."""
    if ledger.training is not None or ledger.generation is not None:
        raise UsageError(f"--composed: does not support --mode {ledger.metadata.mode}; expected forward or decode")

    def once(stage: Stage) -> Stage:
        blocks = tuple(msgspec.structs.replace(block, times=1) for block in stage.blocks)
        return msgspec.structs.replace(stage, blocks=blocks, order=BlockOrder(tuple(dict.fromkeys(stage.order))))

    streams = tuple(
        msgspec.structs.replace(stream, stages=tuple(map(once, stream.stages))) for stream in architecture.streams
    )
    return msgspec.structs.replace(architecture, streams=streams)


def composed(measured: Measured, times: Mapping[str, int]) -> Measured:
    """What was measured of the distinct blocks -> what all blocks take; a row's blocks are `times`.

    What stands between the rows grows as the rows do.
    """
    rows = [{path: spent * times.get(path, 1) for path, spent in one.rows.items()} for one in measured.passes]
    once = math.fsum(math.fsum(one.rows.values()) for one in measured.passes)
    factor = math.fsum(math.fsum(one.values()) for one in rows) / once if once else 1.0
    passes = tuple(
        one._replace(
            rows=each,
            copies=one.copies * factor,
            others=one.others * factor,
            launches=None if one.launches is None else round(one.launches * factor),
        )
        for one, each in zip(measured.passes, rows, strict=True)
    )
    phases = {name: tuple(spent * factor for spent in spans) for name, spans in measured.phases.items()}
    return measured._replace(passes=passes, phases=phases, host=tuple(spent * factor for spent in measured.host))
