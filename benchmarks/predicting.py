"""Predicted seconds of a forward or a training step against measured ones, on presets that no calibration ran.

Usage: python benchmarks/predicting.py [--mode train] [--every K] [--most-seconds S] [--seed N] [--threads T]
    [preset …]

Calibrate first (`xfcost calibrate`), on a machine that does nothing else. Every preset that no calibrating network
comes from is predicted at N = 196, 784 and 3,136 (its own N where it has none of them). Where it fits into memory and
is predicted to take no longer than S seconds (3), it is built and run in a process of its own, as `xfcost measure`
does: the median of five runs after one. Of these configurations, shuffled, every K-th is taken (1: all). Prints the
median error, the share within 10 and 15 %, and the worst ten with the operations whose prediction is furthest off.
Beside each, a product shows the machine's pace: where it is not that of the calibration, the summary is also given
without those.

With `--mode train` whole steps are run: forward, backward, and the update by AdamW; at N = 196 and 784.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import torch

from xfcost.api.runs import make_run
from xfcost.counting.forward import count
from xfcost.ledger.calibration import Calibration, same_pace
from xfcost.ledger.errors import DeviceError, XfcostError
from xfcost.ledger.statistics import nine_in_ten
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.systems.predictions import predictors
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.memory.shortage import tightest, within_torch
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.calibrate import pace
from xfcost.torch_models.predicting.operations import NETWORKS, TRAINED
from xfcost.torch_models.predicting.predict import Predictor, Recorded, Seconds, recorded, recorded_step
from xfcost.torch_models.predicting.regression import features_of

TOKENS = {"forward": (196, 784, 3136), "train": (196, 784)}
OPTIMIZER = "adamw"
RUNS = 5
FAR = 0.1
MOST_PARAMS = 2_500_000_000


class Configuration(NamedTuple):
    """A preset at an N; None is its own."""

    preset: str
    tokens: int | None
    mode: str

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.preset} N={self.tokens or 'own'}"

    def architecture(self) -> Architecture:
        """Placed at N."""
        run = make_run(N=self.tokens, dtype="float32", attention="eager", mode=self.mode)
        return place(load(self.preset), run)


class Measured(NamedTuple):
    """A configuration that was run."""

    seconds: float
    pace: float
    """Seconds of the reference product."""
    off: str
    """The operations whose prediction is furthest off, where the whole is."""


class Result(NamedTuple):
    """One configuration."""

    name: str
    predicted: float
    measured: float
    low: float
    high: float
    pace: float
    """Seconds of the reference product over those at calibration."""
    off: str

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


class Forward:
    """A forward, predicted and run."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture

    def predicted(self, predict: Predictor) -> Seconds:
        """Without a run."""
        return predict.seconds(partial(build, self.architecture))

    def peak(self) -> int:
        """Bytes that must be free."""
        on_meta = build(self.architecture)
        return peak_bytes(on_meta.model, on_meta.inputs)

    def ready(self) -> tuple[Callable[[], object], Callable[[], Recorded]]:
        """What runs it, and what records its calls."""
        live = build(self.architecture, "cpu")

        def run() -> object:
            with torch.no_grad():
                return live.model(*live.inputs)

        return run, lambda: recorded(live.model, live.inputs, time.perf_counter, 2)


class Step(Forward):
    """A training step."""

    def predicted(self, predict: Predictor) -> Seconds:
        """Without a run."""
        with within_torch(count(self.architecture)):
            return predict.step_seconds(partial(build, self.architecture), OPTIMIZER)

    def peak(self) -> int:
        """Bytes that must be free."""
        return Stepping(build(self.architecture), OPTIMIZER, lists=False).peak()

    def ready(self) -> tuple[Callable[[], object], Callable[[], Recorded]]:
        """What runs it, and what records its calls."""
        live: BuiltModel = build(self.architecture, "cpu")
        stepping = Stepping(live, OPTIMIZER, lists=False)
        return stepping, lambda: recorded_step(live, stepping, time.perf_counter, 2)


RUN = {"forward": Forward, "train": Step}


def configurations(names: list[str], mode: str) -> Iterator[Configuration]:
    """Every preset at every N that it can have."""
    for name in names:
        found = 0
        for tokens in (*TOKENS[mode], None):
            if tokens is None and found:
                continue
            one = Configuration(name, tokens, mode)
            try:
                one.architecture()
            except XfcostError:
                continue
            found += 1
            yield one


def result(one: Configuration, predict: Predictor, most: float) -> Result | None:
    """Predicted and, where it fits, run; None where it doesn't or takes too long."""
    architecture = one.architecture()
    if (count(architecture, orders=False).total("params") or 0) > MOST_PARAMS:
        return None
    run = RUN[one.mode](architecture)
    try:
        expected = run.predicted(predict)
    except DeviceError:  # in training a batch norm needs more than one value per channel
        return None
    if expected.whole > most or run.peak() > tightest().left * 0.8:
        return None
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        found = alone.submit(measured, one, predict.calibration, expected.whole).result()
    bounds = predict.prediction(expected)
    relative = found.pace / predict.calibration.pace
    return Result(one.name, expected.whole, found.seconds, bounds.low, bounds.high, relative, found.off)


def measured(one: Configuration, calibration: Calibration, expected: float) -> Measured:
    """In a process of its own: the median of several runs."""
    torch.set_num_threads(calibration.machine.threads)
    paced = partial(pace, "cpu", "float32", time.perf_counter)
    call, record = RUN[one.mode](one.architecture()).ready()
    times, before = [], paced()
    call()
    for _ in range(RUNS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    whole = statistics.median(times)
    off = ""
    if abs(expected / whole - 1) > FAR:
        off = furthest(record(), Predictor(calibration), whole, trained=one.mode == "train")
    return Measured(whole, (before + paced()) / 2, off)


def furthest(found: Recorded, predict: Predictor, whole: float, *, trained: bool) -> str:
    """The operations with the largest differences, as shares of the whole."""
    differences: dict[str, float] = {}
    every = features_of(found.calls)
    for (_, call), times in found.calls.items():
        spent = statistics.median(found.seconds[call])
        name = call.operation.removeprefix("aten.")
        one = predict.call_seconds(every[call], trained=trained)
        differences[name] = differences.get(name, 0.0) + times * (one - spent)
    worst = sorted(differences, key=lambda name: -abs(differences[name]))[:3]
    return ", ".join(f"{name} {differences[name] / whole:+.0%}" for name in worst)


def main() -> None:
    """Print a line per configuration, then the errors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--mode", choices=sorted(RUN), default="forward")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--most-seconds", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    predict = predictors("cpu", given.threads)("float32")
    torch.set_num_threads(predict.calibration.machine.threads)
    calibrating = {network.preset for network in (TRAINED if given.mode == "train" else NETWORKS)}
    names = given.presets or [name for name in preset_names() if name not in calibrating]
    every = list(configurations(names, given.mode))
    random.Random(given.seed).shuffle(every)  # noqa: S311 - a sample
    results, left_out = [], 0
    for one in every[:: given.every]:
        found = result(one, predict, given.most_seconds)
        if found is None:
            left_out += 1
            continue
        results.append(found)
        seconds = f"{found.predicted:9.4f} {found.measured:9.4f} {found.error:+7.1%}"
        print(f"{found.name:44} {seconds} {found.pace:5.2f}  {found.off}")
        sys.stdout.flush()
    summary(results, left_out, given.most_seconds)


def summary(results: list[Result], left_out: int, most: float) -> None:
    """The errors of all configurations, and of those that ran at the pace of the calibration."""
    print(f"\n{len(results)} configurations; {left_out} left out (too large, or predicted above {most:g} s)")
    errors(results)
    same = [result for result in results if same_pace(result.pace, 1)]
    if len(same) < len(results):
        print(f"\nof these, {len(same)} at the pace of the calibration:")
        errors(same)
    print("\nthe worst ten:")
    for result in sorted(results, key=lambda one: -abs(one.error))[:10]:
        print(f"  {result.name:42} {result.error:+7.1%} {result.pace:5.2f}  {result.off}")


def errors(results: list[Result]) -> None:
    """How far predictions are off."""
    if not results:
        return
    sizes = sorted(abs(result.error) for result in results)
    inside = statistics.mean(result.low <= result.measured <= result.high for result in results)
    print(f"median error {statistics.median(sizes):.1%}; nine in ten within {nine_in_ten(sizes):.1%}")
    for share in (0.1, 0.15):
        print(f"within {share:.0%}: {statistics.mean(size <= share for size in sizes):.0%}")
    print(f"inside the interval: {inside:.0%}")


if __name__ == "__main__":
    main()
