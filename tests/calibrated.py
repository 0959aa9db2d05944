"""A small calibration: element-wise exponentials alone were measured, one network is 10 % off; and recorded runs."""

from pathlib import Path

import torch

from xfcost.api.runs import make_run
from xfcost.ledger import calibration as files
from xfcost.ledger.calibration import Baseline, CalibratedMachine, Calibration, Network, Overhead
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.torch_models.build import build
from xfcost.torch_models.predicting.calibrate import NetworkRun
from xfcost.torch_models.predicting.regression import CallFeatures, baseline_seconds, samples_of
from xfcost.torch_models.running.prediction_calls import Layout

BASELINE = Baseline(call_seconds=1e-6, macs_per_second=1e9, bytes_per_second=1e9)
MACHINE = CalibratedMachine(device="cpu", name="a processor", threads=2, dtype="float32", torch="2.13.0")


def points(ratio, sizes=(4, 6, 8, 10, 12)):
    """Calls of one kind that take `ratio(log2 of the size)` times the baseline."""
    found = [CallFeatures("aten.exp", "c>c", (float(size), float(size), 3.0), 0, 2**size) for size in sizes]
    return {one: baseline_seconds(BASELINE, one) * ratio(one.numbers[0]) for one in found}


def calibration(**changes):
    """A calibration of some machine, with `changes`."""
    kinds = samples_of(BASELINE, points(lambda _: 2.0))
    networks = (Network(name="n", seconds=1.0, predicted=1.1),)
    overhead = Overhead(call=0.0, view=0.0, module=0.0)
    given = {"machine": MACHINE, "measured": "2026-11-22T10:00:00+00:00", "baseline": BASELINE, "overhead": overhead,
             "networks": networks, "samples": kinds}  # fmt: skip
    return Calibration(**(given | changes))


def keep_calibration(folder, monkeypatch, **changes) -> Path:
    """Keep one of this machine, for one thread, as the user's own; the path of its file."""
    from xfcost.torch_models.predicting.calibrate import this_machine
    from xfcost.torch_models.timing.devices import threads_set

    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.setenv("HOME", str(folder))
    with threads_set(1):
        machine = this_machine("cpu", "float32")
    path = files.path_of("cpu", 1, "float32")
    files.write_calibration(path, calibration(machine=machine, **changes))
    return path


def live(name, device="meta", settings=(), **options):
    return build(place(load(name, settings), make_run(**options)), device)


class Ticks:
    """A clock that goes on by so many seconds at every look."""

    def __init__(self, seconds=1e-3):
        self.now, self.seconds = 0.0, seconds

    def __call__(self):
        self.now += self.seconds
        return self.now


def network(seconds, predicted):
    return Network(name="n", seconds=seconds, predicted=predicted)


def runs(overhead):
    """Networks of two kinds of calls, with that much overhead; each kind takes 2 or 3 times its baseline."""
    found = []
    for number, size in enumerate((6, 7, 8, 9, 10, 11)):
        calls = {
            CallFeatures("a", "", (float(size),), 0, 2**size): 3 + number,
            CallFeatures("b", "", (float(size),), 10**size // 10**4, 64): 5,
        }
        seconds = {one: baseline_seconds(BASELINE, one) * (2 if one.operation == "a" else 3) for one in calls}
        counts = (sum(calls.values()), 7 * number % 5, 4 + number * number)
        spent = sum(calls[one] * seconds[one] for one in calls)
        rest = sum(
            each * count for each, count in zip((overhead.call, overhead.view, overhead.module), counts, strict=True)
        )
        found.append(NetworkRun(f"network {number}", calls, seconds, counts[1], counts[2], spent + rest))
    return found


def layout(*sizes, strides=None, dtype="float32"):
    if strides is None:
        strides = torch.empty(sizes, device="meta").stride()
    return Layout(sizes, tuple(strides), dtype)
