"""Calibrates a device: runs networks on it, times each of their calls and the whole, and fits what no call spends."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from typing import Final, NamedTuple

import torch

from xfcost.ledger.calibration import (
    Baseline,
    Calibration,
    Machine,
    Network,
    Overhead,
    Samples,
    TrainingSteps,
    disagreement,
    disturbed,
    same_pace,
)
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import build
from xfcost.torch_models.predicting.baseline import peaks, recording_seconds
from xfcost.torch_models.predicting.calls import Recorded, recorded
from xfcost.torch_models.predicting.features import Features, features_of
from xfcost.torch_models.predicting.networks import architectures
from xfcost.torch_models.predicting.operations import Operations
from xfcost.torch_models.predicting.overhead import Outside, overhead_of
from xfcost.torch_models.predicting.pace import Pace
from xfcost.torch_models.predicting.regression import Regression, joined, samples_of
from xfcost.torch_models.predicting.runners import Runner, forward_runner, step_runner
from xfcost.torch_models.predicting.training_networks import training_networks
from xfcost.torch_models.running.prediction_calls import LayoutCall
from xfcost.torch_models.running.recorder import Clock
from xfcost.torch_models.timing.devices import machine, waiting_clock

Placed = tuple[str, Architecture, bool]
Stepped = tuple[str, Architecture, str]

# Runs of one network: at least so many, more while they last no longer than these seconds.
_FEWEST: Final = 3
_MOST: Final = 20
_SECONDS: Final = 1.0
# Single operations take as long as so many networks.
_OPERATION_STEPS: Final = 30
_SHORTEST: Final = 2e-7
# More than the caches of processors and GPUs hold.
_EVICTING_BYTES: Final = 2**28
# A disturbed network is measured so many times at most.
_TRIES: Final = 3


class Run(NamedTuple):
    """A network that was run: its calls, each with its seconds, and the seconds of the whole."""

    name: str
    calls: Mapping[Features, int]
    seconds: Mapping[Features, float]
    views: int
    modules: int
    whole: float
    cut: bool = False
    """Has it fewer blocks than its preset? It is then run from empty caches."""
    pace: float = 0.0
    """Seconds of the reference product before and after it: the mean."""

    @property
    def spent(self) -> float:
        """Seconds of all its calls."""
        return math.fsum(self.seconds[found] * times for found, times in self.calls.items())


def this_machine(device: str, dtype: str) -> Machine:
    """The device as a calibration names it."""
    return Machine(
        device=device, name=machine(device), threads=torch.get_num_threads(), dtype=dtype, torch=version("torch")
    )


def calibrated(
    device: str, dtype: str, say: Callable[[int, int, str], None], clock: Clock | None = None
) -> Calibration:
    """Measure the device. `say` gets k, n and the name of each network before it runs."""
    ticks = clock or waiting_clock(device)
    networks, trained = list(architectures(dtype)), list(training_networks(dtype))
    steps = len(networks) + len(trained) + 1 + _OPERATION_STEPS
    say(1, steps, "peaks")
    baseline = peaks(device, dtype, ticks)
    extra = recording_seconds(device, ticks)
    every = _measurements(device, dtype, ticks, extra, networks, trained)
    runs = []
    for number, (name, measure) in enumerate(every, 2):
        say(number, steps, name)
        runs.append(measure())
    runs = at_one_pace(runs, [measure for _, measure in every])
    say(len(every) + 2, steps, "single operations")  # last: networks after them would take up to a third longer
    single = Operations(getattr(torch, dtype), device)
    operations = run_of("single operations", recorded(single, (), ticks), 0.0, extra)
    forwards, learned = runs[: len(networks)], runs[len(networks) :]
    return fitted(this_machine(device, dtype), baseline, forwards, operations, learned)


def _measurements(
    device: str, dtype: str, ticks: Clock, extra: float, networks: Sequence[Placed], trained: Sequence[Stepped]
) -> list[tuple[str, Callable[[], Run]]]:
    """What measures each network, by its name."""
    evicted, pace = Evicted(device), Pace(device, dtype, ticks)

    def measured(name: str, runner: Runner, cut: bool = False) -> Run:
        before = pace()
        run = steady(partial(_run, name, runner, ticks, extra))
        return run._replace(cut=cut, pace=(before + pace()) / 2)

    def forward(name: str, architecture: Architecture, cut: bool) -> Run:
        return measured(name, forward_runner(build(architecture, device), ticks, evicted if cut else _nothing), cut)

    def step(name: str, architecture: Architecture, optimizer: str) -> Run:
        return measured(name, step_runner(build(architecture, device), optimizer, device, ticks, _nothing))

    return [
        *((one[0], partial(forward, *one)) for one in networks),
        *((one[0], partial(step, *one)) for one in trained),
    ]


def at_one_pace(runs: Sequence[Run], again: Sequence[Callable[[], Run]]) -> list[Run]:
    """The runs, those that the machine made faster or slower than most measured again, once; the nearer one is kept."""
    typical = statistics.median(run.pace for run in runs)
    return [
        run if same_pace(run.pace, typical) else min(run, measure(), key=lambda one: abs(math.log(one.pace / typical)))
        for run, measure in zip(runs, again, strict=True)
    ]


class Evicted:
    """Called, it empties the processor's caches.

    The blocks that a network lacks would have done so: in a whole model every block finds its weights in memory.
    """

    def __init__(self, device: str) -> None:
        self._bytes = torch.zeros(_EVICTING_BYTES, dtype=torch.uint8, device=device)

    def __call__(self) -> None:
        self._bytes.add_(1)


def _nothing() -> None:
    """Nothing is to be done before a run."""


def _run(name: str, runner: Runner, clock: Clock, extra: float) -> Run:
    """The network run whole, then with a clock around each call."""
    whole, times = _whole(runner, clock)
    return run_of(name, runner.recorded(times), whole, extra)


def steady(measure: Callable[[], Run]) -> Run:
    """The first measurement that nothing disturbed, of at most three; else the least disturbed."""
    best = measure()
    for _ in range(_TRIES - 1):
        if not disturbed(best.spent, best.whole):
            break
        best = min(best, measure(), key=lambda one: disagreement(one.spent, one.whole))
    return best


def fitted(
    where: Machine, baseline: Baseline, runs: Sequence[Run], operations: Run, learned: Sequence[Run] = ()
) -> Calibration:
    """The calibration of measured networks; `learned` ran training steps."""
    # Empty caches slow Python down too, once a run: not a part of what a call costs.
    overhead = overhead_of([outside(one) for one in runs if not one.cut])
    measured = merged([*runs, operations])
    return Calibration(
        machine=where,
        measured=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        baseline=baseline,
        overhead=overhead,
        networks=tuple(_left_out(one, runs, operations, baseline, overhead) for one in runs),
        samples=samples_of(baseline, measured),
        training=_training(baseline, samples_of(baseline, measured), learned) if learned else None,
        pace=statistics.median(run.pace for run in (*runs, *learned)),
    )


def _training(baseline: Baseline, of_forwards: Sequence[Samples], runs: Sequence[Run]) -> TrainingSteps:
    """What training steps tell, each predicted from the others and from all forwards."""
    overhead = overhead_of([outside(one) for one in runs])

    def without(run: Run) -> Network:
        others = samples_of(baseline, merged(one for one in runs if one is not run))
        return _predicted(run, Regression(baseline, joined(of_forwards, others)), overhead)

    networks = tuple(without(one) for one in runs)
    return TrainingSteps(overhead=overhead, networks=networks, samples=samples_of(baseline, merged(runs)))


def _whole(runner: Runner, clock: Clock) -> tuple[float, int]:
    """The median seconds of a whole run, and the number of runs that it was taken from."""
    times: list[float] = []
    runner.whole()
    while len(times) < _FEWEST or (sum(times) < _SECONDS and len(times) < _MOST):
        runner.before()
        started = clock()
        runner.whole()
        times.append(clock() - started)
    return statistics.median(times), len(times)


def run_of(name: str, found: Recorded, whole: float, extra: float = 0.0) -> Run:
    """A recorded run, its calls by what decides their seconds; recording added `extra` to each."""
    every = features_of(found.calls)
    calls: dict[Features, int] = defaultdict(int)
    for (_, call), number in found.calls.items():
        calls[every[call]] += number
    seconds = _medians(found.seconds, every, extra)
    return Run(name, dict(calls), seconds, sum(found.views.values()), sum(found.modules.values()), whole)


def _medians(
    seconds: Mapping[LayoutCall, Sequence[float]], every: Mapping[LayoutCall, Features], extra: float
) -> dict[Features, float]:
    together: dict[Features, list[float]] = defaultdict(list)
    for call, times in seconds.items():
        together[every[call]] += times
    return {found: max(statistics.median(times) - extra, _SHORTEST) for found, times in together.items()}


def merged(runs: Iterable[Run]) -> dict[Features, float]:
    """Every measured call with its seconds; the median where several networks make it."""
    together: dict[Features, list[float]] = defaultdict(list)
    for run in runs:
        for found, seconds in run.seconds.items():
            together[found].append(seconds)
    return {found: statistics.median(times) for found, times in together.items()}


def outside(run: Run) -> Outside:
    """What the network's calls do not account for."""
    return Outside(sum(run.calls.values()), run.views, run.modules, run.whole - run.spent, run.whole)


def _left_out(run: Run, runs: Sequence[Run], operations: Run, baseline: Baseline, overhead: Overhead) -> Network:
    """The network predicted from the calls of all others."""
    others = merged([*(one for one in runs if one is not run), operations])
    return _predicted(run, Regression(baseline, samples_of(baseline, others)), overhead)


def _predicted(run: Run, regression: Regression, overhead: Overhead) -> Network:
    spent = sum(regression(found).seconds * times for found, times in run.calls.items())
    around = overhead.seconds(calls=sum(run.calls.values()), views=run.views, modules=run.modules)
    return Network(name=run.name, seconds=run.whole, predicted=spent + around, calls=run.spent, pace=run.pace)
