"""Calibrates a device: runs networks on it, times each of their calls and the whole, and fits what no call spends."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xfcost.ledger.calibration import (
    Baseline,
    CalibratedMachine,
    Calibration,
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
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.operations import NETWORKS, TRAINED, SingleOperations, Trial, placed
from xfcost.torch_models.predicting.predict import Before, Recorded, recorded, recorded_step
from xfcost.torch_models.predicting.regression import CallFeatures, Regression, features_of, joined, samples_of
from xfcost.torch_models.running.recorder import Clock
from xfcost.torch_models.timing.devices import machine, waiting_clock

_PEAK_SIDE: Final = 2048
_PEAK_BYTES: Final = 2**27
# A peak is the best of so many runs.
_PEAK_RUNS: Final = 20
_SMALL_CALLS: Final = 200
# The reference product, and how often it runs.
_ROWS: Final = 196
_WIDTH: Final = 384
_RUNS: Final = 40


def peaks(device: str, dtype: str, clock: Clock) -> Baseline:
    """The rate of a large matrix product, of a large addition, and the seconds of the smallest call."""
    with torch.device(device), torch.no_grad():
        matrix = torch.randn(_PEAK_SIDE, _PEAK_SIDE, dtype=getattr(torch, dtype))
        numbers = torch.zeros(_PEAK_BYTES // matrix.element_size(), dtype=matrix.dtype)
        one, kept = torch.zeros(1), torch.empty_like(numbers)
        return Baseline(
            macs_per_second=_PEAK_SIDE**3 / _shortest(lambda: matrix @ matrix, clock),
            bytes_per_second=3 * _PEAK_BYTES / _shortest(lambda: torch.add(numbers, numbers, out=kept), clock),
            call_seconds=_shortest(lambda: _Small()(one), clock) / _SMALL_CALLS,
        )


def _shortest(call: Callable[[], Any], clock: Clock) -> float:
    call()
    return max(min(_times(call, clock, _PEAK_RUNS)), 1e-9)


def _times(call: Callable[[], Any], clock: Clock, runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        started = clock()
        call()
        found.append(clock() - started)
    return found


class _Small(nn.Module):
    """The smallest calls."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(_SMALL_CALLS):
            x + x
        return x


def recording_seconds(device: str, clock: Clock) -> float:
    """What recording a call adds to its time: a call of a recorded run over one of a plain run."""
    small, x = _Small(), torch.zeros(1, device=device)
    plain = _shortest(lambda: small(x), clock) / _SMALL_CALLS
    alone = [time for times in recorded(small, (x,), clock, _PEAK_RUNS).seconds.values() for time in times]
    return max(statistics.median(alone) - plain, 0.0)


def pace(device: str, dtype: str, clock: Clock) -> float:
    """How fast the machine runs at the moment: seconds of a product that all threads share, run for a tenth of one.

    A machine has more than one pace. A virtual machine's cores may move to other cores of the host, for minutes, where
    the same product takes a quarter longer; a processor may be throttled. Large products and the bandwidth of memory
    need not show it: this one is of the size that models have.
    """
    kind = getattr(torch, dtype)
    tokens = torch.ones(_ROWS, _WIDTH, dtype=kind, device=device)
    weight = torch.ones(_WIDTH, 4 * _WIDTH, dtype=kind, device=device)
    return statistics.median(_times(lambda: torch.mm(tokens, weight), clock, _RUNS))


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
# A network further off than this many times the median of all is left out of the second fit of the overhead.
_FAR: Final = 5.0


class NetworkRun(NamedTuple):
    """A network that was run: its calls, each with its seconds, and the seconds of the whole."""

    name: str
    calls: Mapping[CallFeatures, int]
    seconds: Mapping[CallFeatures, float]
    views: int
    modules: int
    whole: float
    cut: bool = False
    """Has it fewer blocks than its preset? It is then run from empty caches."""
    pace: float = 0.0
    """Seconds of the reference product before and after it: the mean."""

    @property
    def spent(self) -> float:
        return math.fsum(self.seconds[found] * times for found, times in self.calls.items())

    @property
    def outside(self) -> tuple[int, int, int]:
        """Its calls, views and calls of modules: each spends a little around the calls' own seconds."""
        return sum(self.calls.values()), self.views, self.modules


def this_machine(device: str, dtype: str) -> CalibratedMachine:
    """The device as a calibration names it."""
    return CalibratedMachine(
        device=device, name=machine(device), threads=torch.get_num_threads(), dtype=dtype, torch=version("torch")
    )


def calibrated(
    device: str, dtype: str, say: Callable[[int, int, str], None], clock: Clock | None = None
) -> Calibration:
    """Measure the device. `say` gets k, n and the name of each network before it runs."""
    ticks = clock or waiting_clock(device)
    networks = [*placed(NETWORKS, dtype), *placed(TRAINED, dtype)]
    steps = len(networks) + 1 + _OPERATION_STEPS
    say(1, steps, "peaks")
    baseline = peaks(device, dtype, ticks)
    extra = recording_seconds(device, ticks)
    # Written, it empties the processor's caches. The blocks that a network lacks would have done so: in a whole model
    # every block finds its weights in memory.
    evicting = torch.zeros(_EVICTING_BYTES, dtype=torch.uint8, device=device)

    def measured(name: str, architecture: Architecture, network: Trial) -> NetworkRun:
        began = pace(device, dtype, ticks)
        cut = bool(network.settings) and network.mode != "train"
        before = partial(evicting.add_, 1) if cut else None
        whole, record = runner_of(architecture, network, device, ticks, before)

        def once() -> NetworkRun:
            seconds, times = _median_of(whole, before, ticks)
            return run_of(name, record(times), seconds, extra)

        return steady(once)._replace(cut=cut, pace=(began + pace(device, dtype, ticks)) / 2)

    runs = []
    for number, one in enumerate(networks, 2):
        say(number, steps, one[0])
        runs.append(measured(*one))
    runs = at_one_pace(runs, [partial(measured, *one) for one in networks])
    say(len(networks) + 2, steps, "single operations")  # last: networks after them would take up to a third longer
    single = SingleOperations(getattr(torch, dtype), device)
    operations = run_of("single operations", recorded(single, (), ticks), 0.0, extra)
    trained = sum(one.mode == "train" for _, _, one in networks)
    forwards, learned = runs[: len(runs) - trained], runs[len(runs) - trained :]
    return fitted(this_machine(device, dtype), baseline, forwards, operations, learned)


def runner_of(
    architecture: Architecture, network: Trial, device: str, clock: Clock, before: Before = None
) -> tuple[Callable[[], object], Callable[[int], Recorded]]:
    """What runs the network once, and what records and times its calls so many times, each after `before`."""
    live = build(architecture, device)
    if network.mode == "train":
        stepping = Stepping(live, network.optimizer, lists=device.startswith("cuda"))
        return stepping, lambda times: recorded_step(live, stepping, clock, times, before)
    whole = torch.no_grad()(partial(live.model, *live.inputs))
    return whole, lambda times: recorded(live.model, live.inputs, clock, times, before)


def at_one_pace(runs: Sequence[NetworkRun], again: Sequence[Callable[[], NetworkRun]]) -> list[NetworkRun]:
    """The runs, those that the machine made faster or slower than most measured again, once; the nearer one is kept."""
    typical = statistics.median(run.pace for run in runs)
    return [
        run if same_pace(run.pace, typical) else min(run, measure(), key=lambda one: abs(math.log(one.pace / typical)))
        for run, measure in zip(runs, again, strict=True)
    ]


def _median_of(whole: Callable[[], object], before: Before, clock: Clock) -> tuple[float, int]:
    """The median seconds of a whole run, and the number of runs that it was taken from."""
    times: list[float] = []
    whole()
    while len(times) < _FEWEST or (sum(times) < _SECONDS and len(times) < _MOST):
        if before is not None:
            before()
        started = clock()
        whole()
        times.append(clock() - started)
    return statistics.median(times), len(times)


def steady(measure: Callable[[], NetworkRun]) -> NetworkRun:
    """The first measurement that nothing disturbed, of at most three; else the least disturbed."""
    best = measure()
    for _ in range(_TRIES - 1):
        if not disturbed(best.spent, best.whole):
            break
        best = min(best, measure(), key=lambda one: disagreement(one.spent, one.whole))
    return best


def fitted(
    where: CalibratedMachine, baseline: Baseline, runs: Sequence[NetworkRun], operations: NetworkRun,
    learned: Sequence[NetworkRun] = (),
) -> Calibration:  # fmt: skip
    """The calibration of measured networks; `learned` ran training steps."""

    def samples(of: Iterable[NetworkRun]) -> tuple[Samples, ...]:
        """Of every measured call; the median where several networks make it."""
        every = ((found, [seconds]) for run in of for found, seconds in run.seconds.items())
        return samples_of(baseline, _medians(every))

    def predicted(
        of: Sequence[NetworkRun], overhead: Overhead, known: Callable[[list[NetworkRun]], tuple[Samples, ...]]
    ) -> Iterator[Network]:
        """Every network from what is known of the others."""
        for run in of:
            regression = Regression(baseline, known([one for one in of if one is not run]))
            spent = sum(regression(one).seconds * times for one, times in run.calls.items())
            calls, views, modules = run.outside
            seconds = spent + overhead.seconds(calls=calls, views=views, modules=modules)
            yield Network(name=run.name, seconds=run.whole, predicted=seconds, calls=run.spent, pace=run.pace)

    # Empty caches slow Python down too, once a run: not a part of what a call costs.
    overhead, training = overhead_of([one for one in runs if not one.cut]), None
    every = samples([*runs, operations])
    if learned:
        steps = overhead_of(learned)
        networks = predicted(learned, steps, lambda others: joined(every, samples(others)))
        training = TrainingSteps(overhead=steps, networks=tuple(networks), samples=samples(learned))
    return Calibration(
        machine=where,
        measured=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        baseline=baseline,
        overhead=overhead,
        networks=tuple(predicted(runs, overhead, lambda others: samples([*others, operations]))),
        samples=every,
        training=training,
        pace=statistics.median(run.pace for run in (*runs, *learned)),
    )


def run_of(name: str, found: Recorded, whole: float, extra: float = 0.0) -> NetworkRun:
    """A recorded run, its calls by what decides their seconds; recording added `extra` to each."""
    every = features_of(found.calls)
    calls: Counter[CallFeatures] = Counter()
    for (_, call), number in found.calls.items():
        calls[every[call]] += number
    timed = _medians((every[call], times) for call, times in found.seconds.items())
    seconds = {one: max(median - extra, _SHORTEST) for one, median in timed.items()}
    return NetworkRun(name, calls, seconds, found.views.total(), found.modules.total(), whole)


def _medians(every: Iterable[tuple[CallFeatures, list[float]]]) -> dict[CallFeatures, float]:
    together: dict[CallFeatures, list[float]] = defaultdict(list)
    for found, times in every:
        together[found] += times
    return {found: statistics.median(times) for found, times in together.items()}


def overhead_of(networks: Sequence[NetworkRun]) -> Overhead:
    """Seconds of a call, a view and a module: least squares of relative errors, none of the three below zero.

    A network that something disturbed would move all three; so those far from a first fit are left out of a second.
    """
    counts = np.array([one.outside for one in networks], dtype=float)
    whole = np.array([one.whole for one in networks])
    shares, rest = counts / whole[:, None], np.array([one.whole - one.spent for one in networks]) / whole
    errors = np.abs(shares @ _non_negative(shares, rest) - rest)
    near = errors <= max(_FAR * float(np.median(errors)), 1e-9)
    call, view, module = _non_negative(shares[near], rest[near])
    return Overhead(call=float(call), view=float(view), module=float(module))


def _non_negative(factors: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares without a negative coefficient: the best of the fits to some of the columns, the others zero."""
    columns = factors.shape[1]
    best, least = np.zeros(columns), float(values @ values)
    for number in range(1, columns + 1):
        for chosen in map(list, combinations(range(columns), number)):
            found = np.zeros(columns)
            found[chosen] = np.linalg.lstsq(factors[:, chosen], values, rcond=None)[0]
            error = float(((factors @ found - values) ** 2).sum())
            if (found >= 0).all() and error < least:
                best, least = found, error
    return best
