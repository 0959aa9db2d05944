"""A small calibration: element-wise exponentials alone were measured, and one network is 10 % off."""

from __future__ import annotations

from pathlib import Path

from xfcost.ledger import calibration as files
from xfcost.ledger.calibration import Baseline, CalibratedMachine, Calibration, Network, Overhead
from xfcost.torch_models.predicting.regression import CallFeatures, baseline_seconds, samples_of

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
