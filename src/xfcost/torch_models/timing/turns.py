"""Systems timed in turns: A B A B …, until the medians are known well enough or the time is spent.

`torch.utils.benchmark` measures one turn of one call. What slows the machine down for a while slows all systems of a
turn down, so that their ratio, taken turn by turn, hardly changes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from xfcost.ledger.metadata import CudaGraph, Lane, Lanes, Load, Phase, Timing
from xfcost.ledger.statistics import interquartile_range, median, precision
from xfcost.ledger.timing_plan import USUAL, TimingPlan, in_lane, noise_text
from xfcost.torch_models.timing.devices import (
    Clock,
    SystemCounters,
    cores,
    load_between,
    machine,
    read_system,
    threads_set,
    waiting_clock,
)
from xfcost.torch_models.timing.kernels import RowSeconds

# Six measurements are the fewest that give an interval; after --max-time three are enough of runs that take seconds,
# and are reported as noisy.
_FEWEST: Final = 6
_FEWEST_LATE: Final = 3
_LATE_SECONDS: Final = 1.0
# A call of so many seconds is measured without one before it: filling the caches is less than a fiftieth of it.
_LONG_SECONDS: Final = 0.2
# Turns of a system in --min-time.
_TURNS: Final = 10
# Passes that are looked at operation by operation, one after each of the first turns.
_ROW_PASSES: Final = 20
# Their share of --max-time; the first pass is made whatever it takes.
_ROW_SHARE: Final = 0.25


class Subject(NamedTuple):
    """What is timed: one call, or several that follow each other (prefill, then all steps)."""

    calls: Mapping[str, Callable[[], object]]
    """By phase; the name of a single call is empty."""
    rows: Callable[[], RowSeconds] | None = None
    """A pass that is looked at operation by operation."""
    peak: Callable[[], int | None] = lambda: None
    """Measures its peak bytes, once its times are taken."""


class Measured(NamedTuple):
    """The measurements of one subject, one per turn."""

    phases: dict[str, tuple[float, ...]]
    """Seconds of each call, by turn."""
    passes: tuple[RowSeconds, ...]
    """What each pass gave that was looked at operation by operation."""
    warm_up: float
    """Seconds of the first calls, which are not measured otherwise."""
    load: Load
    threads: int
    in_turns: bool
    """Were several subjects timed?"""
    host: tuple[float, ...] = ()
    """On a GPU, seconds until the host had issued everything, by turn."""
    cuda_graph: CudaGraph | None = None

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of all calls together, by turn."""
        return _together(self.phases)

    def row_seconds(self) -> dict[Any, float]:
        """The median of every row over all its blocks."""
        paths = {path: None for one in self.passes for path in one.rows}
        return {path: statistics.median(one.rows.get(path, 0.0) for one in self.passes) for path in paths}

    @property
    def update(self) -> float | None:
        """The median of the optimizer's step."""
        found = [one.update for one in self.passes if one.update is not None]
        return statistics.median(found) if found else None


class Meters(NamedTuple):
    """What reads the time and the system; tests hand in their own."""

    clock: Clock = time.perf_counter
    read: Callable[[], SystemCounters] = read_system


REAL: Final = Meters()


def take_turns(
    subjects: Sequence[Subject], device: str, plan: TimingPlan = USUAL, meters: Meters = REAL
) -> list[Measured]:
    """All `subjects` timed in turns on `device`, after a call of each that is not measured."""
    threads = plan.threads or cores()
    with threads_set(threads):
        clock = waiting_clock(device, meters.clock)
        issued = meters.clock if device.startswith("cuda") else None
        if device == "mps":  # it has no kernels that can be told apart
            subjects = [subject._replace(rows=None) for subject in subjects]
        timed = [_Timed(subject, clock, threads, issued) for subject in subjects]
        start, began = meters.read(), clock()
        for one in timed:  # the first call of each phase loads code and takes memory; with a compiler it compiles
            one.warm_up = sum(_seconds_of(call, clock) for call in one.subject.calls.values())
        turns, turns_began = 0, clock()
        while not _enough(plan, timed, turns, clock() - turns_began, clock() - began):
            for one in timed:
                one.take_turn(plan)
            turns += 1
        load = load_between(start, meters.read(), clock() - began)
    return [
        Measured(
            phases={phase: tuple(times) for phase, times in one.phases.items()},
            passes=tuple(one.passes),
            warm_up=one.warm_up,
            load=load,
            threads=threads,
            in_turns=len(subjects) > 1,
            host=tuple(one.host),
        )
        for one in timed
    ]


class _Timed:
    """One subject with its timers and what they measured so far."""

    def __init__(self, subject: Subject, clock: Clock, threads: int, issued: Clock | None) -> None:
        from torch.utils import benchmark  # its import takes half as long as a trace

        self.subject = subject
        self.timers = {
            phase: benchmark.Timer("call()", globals={"call": call}, timer=clock, num_threads=threads)
            for phase, call in subject.calls.items()
        }
        self.phases: dict[str, list[float]] = {phase: [] for phase in subject.calls}
        self.passes: list[RowSeconds] = []
        self.host: list[float] = []
        self._clock, self._issued = clock, issued
        self._row_seconds = 0.0
        self.warm_up = 0.0

    def take_turn(self, plan: TimingPlan) -> None:
        """One measurement of each phase; then a pass over the rows, while these passes take a small part of the time.

        torch's timer begins with a call that it does not count, which fills the caches that another system has emptied.
        """
        for phase, timer in self.timers.items():
            times = self.phases[phase]
            if times and times[-1] >= _LONG_SECONDS:
                times.append(_seconds_of(self.subject.calls[phase], self._clock))
            else:
                times.append(timer.blocked_autorange(min_run_time=plan.min_time / _TURNS).median)
        if self._issued is not None:
            spent = 0.0
            for call in self.subject.calls.values():
                self._clock()  # the GPU has finished what came before
                spent += _seconds_of(call, self._issued)
            self.host.append(spent)
        every = plan.runs is not None or plan.lane == "device"  # the kernels are what is measured
        more = len(self.passes) < _ROW_PASSES and (every or self._row_seconds < _ROW_SHARE * plan.max_time)
        if self.subject.rows is not None and more:
            began = self._clock()
            self.passes.append(self.subject.rows())
            self._row_seconds += self._clock() - began

    def times(self, lane: Lane) -> Sequence[float]:
        """The seconds of a lane, by turn."""
        if lane == "device":
            return [one.total for one in self.passes]
        return self.host if lane == "host" else _together(self.phases)


def _seconds_of(call: Callable[[], object], clock: Clock) -> float:
    began = clock()
    call()
    return clock() - began


def _together(phases: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    """Seconds of all calls, by turn."""
    return tuple(sum(turn) for turn in zip(*phases.values(), strict=True))


def _enough(plan: TimingPlan, timed: Sequence[_Timed], turns: int, measured: float, spent: float) -> bool:
    """Are the turns done: as many as asked for, or precise enough, or out of time?"""
    if plan.runs is not None:
        return turns >= plan.runs
    slow = turns and any(median(one.times("wall")).value >= _LATE_SECONDS for one in timed)
    if turns >= (_FEWEST_LATE if slow else _FEWEST) and spent >= plan.max_time * len(timed):
        return True
    if turns < _FEWEST or measured < plan.min_time * len(timed):
        return False
    reached = [precision(median(times)) if (times := one.times(plan.lane)) else None for one in timed]
    return all(one is not None and one <= plan.precision for one in reached)


def timing_of(
    measured: Measured, device: str, peak: int | None, predicted: int | None, plan: TimingPlan = USUAL
) -> Timing:
    """The statistics of several measurements, and whether they are to be trusted."""
    times = measured.times
    found = median(times)
    threads = measured.threads if device.startswith("cpu") else 1
    by_kernel = [one for one in measured.passes if one.launches]
    lanes = (
        Lanes(
            host=statistics.median(measured.host),
            kernels=statistics.median(one.total for one in by_kernel),
            copies=statistics.median(one.copies for one in by_kernel),
            launches=by_kernel[-1].launches or 0,
            wall=found.value,
            host_times=measured.host,
            kernel_times=tuple(one.total for one in by_kernel),
        )
        if by_kernel and measured.host
        else None
    )
    timing = Timing(
        device=device,
        machine=machine(device),
        seconds=found.value,
        spread=interquartile_range(times),
        runs=len(times),
        threads=measured.threads,
        peak_bytes=peak,
        predicted_peak_bytes=predicted,
        interval=found.interval,
        precision=precision(found),
        times=times,
        in_turns=measured.in_turns,
        warm_up_seconds=measured.warm_up,
        compiled=plan.compile,
        composed=plan.composed,
        load=measured.load,
        noisy=noise_text(found, measured.load, threads, plan, host_bound=lanes is not None and lanes.host_bound),
        lanes=lanes,
        cuda_graph=measured.cuda_graph,
        phases=tuple(
            Phase(name=name, seconds=(each := median(spent)).value, interval=each.interval)
            for name, spent in measured.phases.items()
            if name
        ),
    )
    return in_lane(timing, plan.lane, plan)
