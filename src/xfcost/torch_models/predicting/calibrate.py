"""Calibrates a device: runs networks on it, times each of their calls and the whole, and fits what no call spends.

On a GPU the seconds of a call are those of its kernels, and what no call spends are the seconds of the host.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from itertools import combinations
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xfcost.ledger.calibration import (
    Baseline,
    CalibratedMachine,
    Calibration,
    DeviceCache,
    Network,
    Overhead,
    Samples,
    TrainingSteps,
    disagreement,
    disturbed,
    same_pace,
)
from xfcost.ledger.errors import DeviceError
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.operations import NETWORKS, TRAINED, SingleOperations, Trial, placed
from xfcost.torch_models.predicting.predict import (
    Before,
    Recorded,
    Running,
    by_clock,
    by_kernels,
    in_all_steps,
    recorded,
    recorded_step,
)
from xfcost.torch_models.predicting.regression import (
    CallFeatures,
    Regression,
    as_kernels,
    features_of,
    joined,
    kernel_features,
    samples_of,
)
from xfcost.torch_models.running.prediction_calls import FUSED_ATTENTION
from xfcost.torch_models.running.recorder import Clock
from xfcost.torch_models.running.surroundings import torch_dtype
from xfcost.torch_models.timing.devices import machine, waiting_clock
from xfcost.torch_models.timing.kernels import kernels_of

_PEAK_SIDE: Final = 2048
# The product of that side has too few tiles for all multiprocessors of a GPU.
_PEAK_SIDE_OF_GPU: Final = 8192
_PEAK_BYTES: Final = 2**27
# Three tensors of an addition fill this share of a GPU's cache; of results of this share it still holds all.
_ADDED_SHARE: Final = 0.5
_HELD_SHARE: Final = 0.8
# A peak is the best of so many runs.
_PEAK_RUNS: Final = 20
_SMALL_CALLS: Final = 200
# The reference product, and how often it runs.
_ROWS: Final = 196
_WIDTH: Final = 384
_RUNS: Final = 40


def peaks(device: str, dtype: str) -> Baseline:
    """The rates of a large matrix product and a large addition, the seconds of the smallest call; of a GPU its cache.

    Raises:
        DeviceError: torch's profiler sees no kernels of the GPU.
    """
    gpu = torch.cuda.get_device_properties(device) if device.startswith("cuda") else None
    kind, side = torch_dtype(dtype), _PEAK_SIDE if gpu is None else _PEAK_SIDE_OF_GPU

    def added(nbytes: int) -> float:
        """Bytes per second of an addition of tensors of that size."""
        numbers = torch.zeros(nbytes // kind.itemsize, dtype=kind)
        kept = torch.empty_like(numbers)
        return 3 * nbytes / _shortest(lambda: torch.add(numbers, numbers, out=kept), device)

    with torch.device(device), torch.no_grad():
        matrix, one = torch.randn(side, side, dtype=kind), torch.zeros(1)
        found = Baseline(
            macs_per_second=side**3 / _shortest(lambda: matrix @ matrix, device),
            bytes_per_second=added(_PEAK_BYTES),
            call_seconds=_shortest(lambda: _Small()(one), device) / _SMALL_CALLS,
        )
        if gpu is None:
            return found
        nbytes = gpu.L2_cache_size
        cache = DeviceCache(held_bytes=_HELD_SHARE * nbytes, bytes_per_second=added(int(_ADDED_SHARE * nbytes / 3)))
        return msgspec.structs.replace(found, cache=cache, multiprocessors=gpu.multi_processor_count)


def _shortest(call: Callable[[], Any], device: str) -> float:
    """Seconds of the shortest of several runs; on a GPU those of their kernels, which repeat within a percent."""
    call()
    if not device.startswith("cuda"):
        return max(min(_times(call, waiting_clock(device), _PEAK_RUNS)), 1e-9)
    found = kernels_of(lambda: [call() for _ in range(_PEAK_RUNS)], device)
    if not found.total:
        raise DeviceError(
            f"--device {device}: torch's profiler saw no kernels, by which a GPU is calibrated; see whether another "
            "profiler uses the GPU, and whether torch.profiler.supported_activities() has CUDA"
        )
    return found.total / _PEAK_RUNS


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
    plain = _shortest(lambda: small(x), device) / _SMALL_CALLS
    (alone,) = recorded(small, (x,), by_clock(clock, _PEAK_RUNS)).seconds.values()
    return max(statistics.median(alone) - plain, 0.0)


def pace(device: str, dtype: str, clock: Clock) -> float:
    """How fast the machine runs at the moment: seconds of a product that all threads share, run for a tenth of one.

    A machine has more than one pace. A virtual machine's cores may move to other cores of the host, for minutes, where
    the same product takes a quarter longer; a processor may be throttled. Large products and the bandwidth of memory
    need not show it: this one is of the size that models have.
    """
    kind = torch_dtype(dtype)
    tokens = torch.ones(_ROWS, _WIDTH, dtype=kind, device=device)
    weight = torch.ones(_WIDTH, 4 * _WIDTH, dtype=kind, device=device)
    return statistics.median(_times(lambda: torch.mm(tokens, weight), clock, _RUNS))


# Runs of one network: at least so many, more while they last no longer than these seconds.
_FEWEST: Final = 3
_MOST: Final = 20
# The host's median of twelve runs is within 2 % of that of ten in nine of ten recorded configurations.
_MOST_ON_GPU: Final = 12
_SECONDS: Final = 1.0
# Single operations take as long as so many networks.
_OPERATION_STEPS: Final = 30
_SHORTEST: Final = 2e-7
# More than the caches of processors and GPUs hold.
_EVICTING_BYTES: Final = 2**28
# A disturbed network is measured so many times at most.
_TRIES: Final = 3
# A host whose kernels take this share of its seconds may have waited for the GPU.
_WAITS: Final = 0.9
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
    host: float | None = None
    """On a GPU: seconds until Python has issued its calls, whose own seconds are those of kernels."""
    kernels: float = 0.0
    """On a GPU: seconds of all its kernels."""

    @property
    def spent(self) -> float:
        return math.fsum(self.seconds[found] * times for found, times in self.calls.items())

    @property
    def rest(self) -> float:
        """Seconds that no call spends: on a GPU all of the host's."""
        return self.whole - self.spent if self.host is None else self.host

    @property
    def outside(self) -> tuple[int, int, int]:
        """Its calls, views and calls of modules: each spends a little around the calls' own seconds."""
        return sum(self.calls.values()), self.views, self.modules


def this_machine(device: str, dtype: str) -> CalibratedMachine:
    """The device as a calibration names it."""
    return CalibratedMachine(
        device=device, name=machine(device), threads=torch.get_num_threads(), dtype=dtype, torch=version("torch")
    )


def calibrated(device: str, dtype: str, say: Callable[[int, int, str], None]) -> Calibration:
    """Measure the device. `say` gets k, n and the name of each network before it runs.

    Raises:
        DeviceError: torch's profiler sees no kernels of the GPU.
    """
    ticks, on_gpu = waiting_clock(device), device.startswith("cuda")
    networks = [*placed(NETWORKS, dtype), *placed(TRAINED, dtype)]
    steps = len(networks) + 1 + _OPERATION_STEPS
    say(1, steps, "peaks")
    baseline = peaks(device, dtype)
    extra = 0.0 if on_gpu else recording_seconds(device, ticks)
    # Written, it empties the caches. The blocks that a network lacks would have done so: in a whole model every block
    # finds its weights in memory.
    evicting = torch.zeros(_EVICTING_BYTES, dtype=torch.uint8, device=device)

    def measured(name: str, architecture: Architecture, network: Trial) -> NetworkRun:
        cut = bool(network.settings) and network.mode != "train"
        before = partial(evicting.add_, 1) if cut else None
        whole, record = runner_of(build(architecture, device), network, lists=on_gpu)
        if on_gpu:
            _, expected = runner_of(build(architecture), network, lists=True)
            seconds, host, _ = median_seconds(whole, before, device)
            return kernel_run(name, expected(in_all_steps), record(by_kernels(device, before)), seconds, host)
        began = pace(device, dtype, ticks)

        def once() -> NetworkRun:
            seconds, _, times = median_seconds(whole, before, device)
            return run_of(name, record(by_clock(ticks, times, before)), seconds, extra)

        return steady(once)._replace(cut=cut, pace=(began + pace(device, dtype, ticks)) / 2)

    runs = []
    for number, one in enumerate(networks, 2):
        say(number, steps, one[0])
        runs.append(measured(*one))
    if not on_gpu:
        runs = at_one_pace(runs, [partial(measured, *one) for one in networks])
    last = "single operations"  # networks after them would take up to a third longer
    say(len(networks) + 2, steps, last)
    kind = torch_dtype(dtype)
    single = SingleOperations(kind, device)
    if on_gpu:
        expected = recorded(SingleOperations(kind, "meta"), (), in_all_steps)
        operations = kernel_run(last, expected, recorded(single, (), by_kernels(device)))
    else:
        operations = run_of(last, recorded(single, (), by_clock(ticks)), 0.0, extra)
    trained = sum(one.mode == "train" for _, _, one in networks)
    forwards, learned = runs[: len(runs) - trained], runs[len(runs) - trained :]
    return fitted(this_machine(device, dtype), baseline, forwards, operations, learned)


def runner_of(
    live: BuiltModel, network: Trial, *, lists: bool = False
) -> tuple[Callable[[], object], Callable[[Running], Recorded]]:
    """What runs the network once, and what records its calls; `lists` as the optimizer has it on CUDA."""
    if network.mode == "train":
        stepping = Stepping(live, network.optimizer, lists=lists)
        return stepping, partial(recorded_step, live, stepping)
    return torch.no_grad()(partial(live.model, *live.inputs)), partial(recorded, live.model, live.inputs)


def at_one_pace(runs: Sequence[NetworkRun], again: Sequence[Callable[[], NetworkRun]]) -> list[NetworkRun]:
    """The runs, those that the machine made faster or slower than most measured again, once; the nearer one is kept."""
    typical = statistics.median(run.pace for run in runs)
    return [
        run if same_pace(run.pace, typical) else min(run, measure(), key=lambda one: abs(math.log(one.pace / typical)))
        for run, measure in zip(runs, again, strict=True)
    ]


def median_seconds(
    whole: Callable[[], object], before: Before, device: str, clock: Clock = time.perf_counter
) -> tuple[float, float, int]:
    """The median seconds of a whole run, of its host until Python has issued it, and the number of runs."""
    waiting, times, hosts = waiting_clock(device, clock), list[float](), list[float]()
    most = _MOST_ON_GPU if device.startswith("cuda") else _MOST
    whole()
    while len(times) < _FEWEST or (sum(times) < _SECONDS and len(times) < most):
        if before is not None:
            before()
        started = waiting()
        whole()
        hosts.append(clock() - started)
        times.append(waiting() - started)
    return statistics.median(times), statistics.median(hosts), len(times)


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
    """The calibration of measured networks; `learned` ran training steps.

    A training step on a GPU runs the kernels of forwards: both are known from the calls of both.
    """
    on_gpu = baseline.cache is not None
    together = [*runs, *learned, operations] if on_gpu else [*runs, operations]

    def samples(of: Iterable[NetworkRun]) -> tuple[Samples, ...]:
        """Of every measured call; the median where several networks make it."""
        every = ((found, [seconds]) for run in of for found, seconds in run.seconds.items())
        return samples_of(baseline, _medians(every))

    def predicted(
        of: Sequence[NetworkRun], overhead: Overhead, known: Callable[[list[NetworkRun]], tuple[Samples, ...]],
        among: Sequence[NetworkRun],
    ) -> Iterator[Network]:  # fmt: skip
        """Every network from what is known of the others."""
        for run in of:
            regression = Regression(baseline, known([one for one in among if one.name != run.name]))
            spent = sum(regression(one).seconds * times for one, times in run.calls.items())
            calls, views, modules = run.outside
            rest = overhead.seconds(calls=calls, views=views, modules=modules)
            yield Network(
                name=run.name, seconds=run.whole, predicted=max(spent, rest) if on_gpu else spent + rest,
                calls=None if on_gpu else run.spent, pace=run.pace,
            )  # fmt: skip

    # Empty caches slow Python down too, once a run: not a part of what a call costs.
    overhead, training = overhead_of([one for one in runs if not one.cut]), None
    every = samples(together)
    if learned:
        steps = overhead_of(learned)
        known = samples if on_gpu else lambda others: joined(every, samples(others))
        networks = predicted(learned, steps, known, together if on_gpu else learned)
        more = () if on_gpu else samples(learned)
        training = TrainingSteps(overhead=steps, networks=tuple(networks), samples=more)
    return Calibration(
        machine=where,
        measured=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        baseline=baseline,
        overhead=overhead,
        networks=tuple(predicted(runs, overhead, samples, together)),
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


# Beginnings of what one operation is called on `meta`, on the CPU and by the libraries of GPUs.
_ATTENTION: Final = (FUSED_ATTENTION, "aten._scaled_dot_product_")
_BATCH_NORM: Final = ("aten.cudnn_batch_norm", "aten.miopen_batch_norm", "aten.native_batch_norm")


def kernel_run(name: str, expected: Recorded, ran: Recorded, whole: float = 0.0, host: float = 0.0) -> NetworkRun:
    """A run on a GPU: its calls as on `meta`, by which they are predicted, with the seconds of their kernels.

    The n-th call of an operation at a place is the n-th there on `meta`. An operation that a place calls more or less
    often on the GPU than on `meta` gets no seconds.
    """
    spent: dict[tuple[str, str], list[float]] = defaultdict(list)
    for place, call, seconds in ran.in_order:
        spent[place, _on_any_device(call.operation)].append(math.fsum(seconds))
    calls: dict[tuple[str, str], list[CallFeatures]] = defaultdict(list)
    counts: Counter[CallFeatures] = Counter()
    for (place, call), _ in as_kernels([((place, call), 1) for place, call, _ in expected.in_order]):
        found = kernel_features(call)
        counts[found] += 1
        calls[place, _on_any_device(call.operation)].append(found)
    pairs = (zip(each, spent[key], strict=True) for key, each in calls.items() if len(spent[key]) == len(each))
    timed = _medians((found, [seconds]) for pair in pairs for found, seconds in pair if seconds > 0)
    kernels = math.fsum(map(math.fsum, spent.values()))
    return NetworkRun(
        name, counts, timed, expected.views.total(), expected.modules.total(), whole, host=host, kernels=kernels
    )


def _on_any_device(operation: str) -> str:
    for name, beginnings in (("attention", _ATTENTION), ("batch norm", _BATCH_NORM)):
        if operation.startswith(beginnings):
            return f"{name} backward" if operation.endswith("_backward") else name
    return operation


def _medians(every: Iterable[tuple[CallFeatures, list[float]]]) -> dict[CallFeatures, float]:
    together: dict[CallFeatures, list[float]] = defaultdict(list)
    for found, times in every:
        together[found] += times
    return {found: statistics.median(times) for found, times in together.items()}


def overhead_of(networks: Sequence[NetworkRun]) -> Overhead:
    """Seconds of a call, a view and a module: least squares of relative errors, none of the three below zero.

    A network that something disturbed would move all three; so those far from a first fit are left out of a second.
    On a GPU those are left out too whose host may have waited for kernels, where others did not; half of the rest take
    longer than the fit, half less.
    """
    chosen = [one for one in networks if one.host is None or one.kernels < _WAITS * one.host] or networks
    counts = np.array([one.outside for one in chosen], dtype=float)
    whole = np.array([one.whole if one.host is None else one.host for one in chosen])
    shares, rest = counts / whole[:, None], np.array([one.rest for one in chosen]) / whole
    errors = np.abs(shares @ _non_negative(shares, rest) - rest)
    near = errors <= max(_FAR * float(np.median(errors)), 1e-9)
    found = _non_negative(shares[near], rest[near])
    if chosen[0].host is not None:  # least squares of relative errors favours short predictions
        found *= float(np.median(rest / (shares @ found)))
    call, view, module = found
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
