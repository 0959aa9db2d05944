"""Fits the calls that were recorded on GPUs: writes src/xfcost/recorded_calls, which `--predict --on h100-sxm` reads.

`tests/data/kernels-h100-h200.json.gz` has 153 configurations in eager PyTorch. Of each: its calls on `meta` with how
often they ran and the microseconds of their kernels on both devices, calls of views and modules, and the microseconds
of all kernels, of the host and of the whole call.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger.calibration import (
    Baseline,
    CalibratedMachine,
    Calibration,
    DeviceCache,
    Network,
    Overhead,
    Samples,
    TrainingSteps,
)
from xfcost.torch_models.predicting.calibrate import NetworkRun, overhead_of
from xfcost.torch_models.predicting.regression import CallFeatures, Regression, kernel_features, samples_of
from xfcost.torch_models.running.prediction_calls import Layout, LayoutCall

_ROOT: Final = Path(__file__).parent.parent
DATA: Final = _ROOT / "tests/data/kernels-h100-h200.json.gz"
DEVICES: Final = ("h100-sxm", "h200-sxm")
_NAMES: Final = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
# Data sheets: bytes per second of memory, multiply-accumulates per second (half the FLOP/s).
_BANDWIDTH: Final = (3.35e12, 4.8e12)
_MACS: Final = {"float32": 33.5e12, "bfloat16": 494.5e12}
# Of the cache: both have 50 MB; that rate is the one of element-wise calls within it.
_CACHE: Final = DeviceCache(held_bytes=40e6, bytes_per_second=5.5e12)
_FOLDS: Final = 8

# Of the host all calls are alike.
_ANY: Final = CallFeatures("", "", (), 0, 0)


class KernelRun(NamedTuple):
    """A configuration, on one device. Times are seconds."""

    preset: str
    dtype: str
    trained: bool
    kernels: float
    host: float
    wall: float
    outside: tuple[int, int, int]
    """Calls, views and calls of modules."""
    calls: tuple[tuple[CallFeatures, int, float], ...]
    """Calls, how often each ran, seconds of its kernels."""


def read_runs(device: int) -> list[KernelRun]:
    """The configurations on the device at that place of `DEVICES`."""
    held = json.loads(gzip.decompress(DATA.read_bytes()))
    layouts = [Layout(tuple(sizes), tuple(strides), dtype) for sizes, strides, dtype in held["tensors"]]
    features = []
    for operation, inputs, outputs, options in held["calls"]:
        read, written = (tuple(layouts[place] for place in places) for places in (inputs, outputs))
        features.append(kernel_features(LayoutCall(operation, read, written, _tuples(options))))
    return [
        KernelRun(
            one["preset"], one["run"].get("dtype", "float32"), one["run"].get("mode") == "train",
            one["kernels"][device] / 1e6, one["host"][device] / 1e6, one["wall"][device] / 1e6,
            (sum(call[1] for call in one["calls"]), one["views"], one["modules"]),
            tuple((features[call[0]], call[1], call[2 + device] / 1e6) for call in one["calls"]),
        )
        for one in held["runs"]
    ]  # fmt: skip


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def baseline_of(device: int, dtype: str) -> Baseline:
    """The device by its data sheet; 2 µs are a kernel's shortest."""
    return Baseline(
        call_seconds=2e-6, macs_per_second=_MACS[dtype], bytes_per_second=_BANDWIDTH[device], cache=_CACHE,
        multiprocessors=132,
    )  # fmt: skip


def samples(runs: Iterable[KernelRun], device: int, dtype: str) -> tuple[Samples, ...]:
    """Every call that ran in a dtype: the median of equal ones."""
    found = defaultdict(list)
    for run in runs:
        for call, _, seconds in run.calls if run.dtype == dtype else ():
            if seconds > 0:
                found[call].append(seconds)
    return samples_of(baseline_of(device, dtype), {call: statistics.median(times) for call, times in found.items()})


def kernel_seconds(known: Sequence[KernelRun], asked: Sequence[KernelRun], device: int, on: int) -> list[float]:
    """Seconds of all kernels of `asked` on one device, from the calls of `known`, which ran on another or on it."""
    regressions = {dtype: Regression(baseline_of(on, dtype), samples(known, device, dtype)) for dtype in _MACS}
    return [sum(times * regressions[run.dtype](call).seconds for call, times, _ in run.calls) for run in asked]


def without_presets(runs: Sequence[KernelRun]) -> Iterable[tuple[list[KernelRun], list[KernelRun]]]:
    """(the others, the runs of an eighth of the presets), eight times."""
    presets = sorted({run.preset for run in runs})
    random.Random(1).shuffle(presets)  # noqa: S311 - no secret
    for fold in range(_FOLDS):
        out = set(presets[fold::_FOLDS])
        yield [run for run in runs if run.preset not in out], [run for run in runs if run.preset in out]


def host_of(runs: Iterable[KernelRun], *, trained: bool) -> Overhead:
    """What launches, views and modules take the host."""
    return overhead_of(
        [
            NetworkRun(
                run.preset, {_ANY: run.outside[0]}, {}, *run.outside[1:], run.wall,
                host=run.host, kernels=run.kernels,
            )
            for run in runs
            if run.trained == trained
        ]
    )  # fmt: skip


def calibration_of(runs: Sequence[KernelRun], device: int, dtype: str) -> Calibration:
    """The calls of one device and dtype, and how far each configuration is predicted without those of its preset."""
    networks: dict[bool, list[Network]] = {False: [], True: []}
    for known, asked in without_presets(runs):
        hosts = {trained: host_of(known, trained=trained) for trained in networks}
        for run, kernels in zip(asked, kernel_seconds(known, asked, device, device), strict=True):
            if run.dtype == dtype:
                calls, views, modules = run.outside
                host = hosts[run.trained].seconds(calls=calls, views=views, modules=modules)
                networks[run.trained].append(Network(name=run.preset, seconds=run.wall, predicted=max(host, kernels)))
    held = json.loads(gzip.decompress(DATA.read_bytes()))
    return Calibration(
        machine=CalibratedMachine(
            device=DEVICES[device], name=_NAMES[device], threads=1, dtype=dtype, torch=held["torch"]
        ),
        measured=held["recorded"],
        baseline=baseline_of(device, dtype),
        overhead=host_of(runs, trained=False),
        networks=tuple(networks[False]),
        samples=samples(runs, device, dtype),
        training=TrainingSteps(overhead=host_of(runs, trained=True), networks=tuple(networks[True]), samples=()),
    )


def main() -> None:
    """Write the four files."""
    for device, name in enumerate(DEVICES):
        runs = read_runs(device)
        for dtype in _MACS:
            packed = gzip.compress(msgspec.json.encode(calibration_of(runs, device, dtype)), 9, mtime=0)
            (_ROOT / f"src/xfcost/recorded_calls/{name}-{dtype}.json.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
