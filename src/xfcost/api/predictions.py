"""Calibrating a device, and predicting seconds from its calibration."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xfcost.api.options import read_option
from xfcost.ledger.calibration import (
    Calibration,
    check_writable,
    path_of,
    read_calibration,
    shipped_calibration,
    shipped_devices,
    write_calibration,
)
from xfcost.ledger.errors import UsageError

if TYPE_CHECKING:
    from xfcost.torch_models.predicting.predict import Predictor


def calibrate(
    device: str = "cpu",
    *,
    dtype: str = "float32",
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Calibration, Path]:
    """Measure `device` for predictions: the calibration, and the file that keeps it.

    Raises:
        DeviceError: the device does not exist.
        OutputError: the file can't be written.
    """
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    dtype = read_option("dtype", dtype)
    threads = read_option("threads", threads)
    check_torch_loads()
    with memory_may_run_out(device, "calibrating it"):
        from xfcost.torch_models.predicting.calibrate import calibrated
        from xfcost.torch_models.timing.devices import check_device, cores, threads_set

        check_device(device)
        check_writable(path_of(device, threads or cores(), dtype))
        with threads_set(threads or cores()):
            found = calibrated(device, dtype, _steps(progress or (lambda text: None)))
    path = path_of(device, found.machine.threads, dtype)
    write_calibration(path, found)
    return found, path


def _steps(say: Callable[[str], None]) -> Callable[[int, int, str], None]:
    """Says every step as `k of n: name, about m s left`."""
    started = time.monotonic()

    def step(number: int, steps: int, name: str) -> None:
        spent = time.monotonic() - started
        left = "" if number == 1 else f", about {spent / (number - 1) * (steps - number + 1):.0f} s left"
        say(f"{number} of {steps}: {name}{left}")

    return step


def predictors(device: str, threads: int | None) -> Callable[[str], Predictor]:
    """dtype -> the predictions of this machine's calibration for it, each read once.

    It raises a DeviceError where the device does not exist, and a UsageError where it is not calibrated so.
    """

    @cache
    def predictor(dtype: str) -> Predictor:
        from xfcost.torch_models.predicting.predict import Predictor

        try:
            return Predictor(calibration_of(device, dtype, threads))
        except UsageError as error:
            raise UsageError(f"--predict: {error}") from None

    return predictor


def calibration_of(device: str, dtype: str, threads: int | None) -> Calibration:
    """The calibration of this machine's `device` for a dtype and a number of threads (None: the physical cores).

    Of a GPU whose recorded calls are shipped, `h100-sxm`, those: it need not be here.

    Raises:
        DeviceError: the device does not exist.
        UsageError: there is none, or none that can be used.
    """
    if device in shipped_devices():
        return shipped_calibration(device, dtype)
    from xfcost.torch_models.predicting.calibrate import this_machine
    from xfcost.torch_models.timing.devices import check_device, cores, threads_set

    check_device(device)
    with threads_set(threads or cores()):
        machine = this_machine(device, dtype)
    return read_calibration(path_of(device, machine.threads, dtype), machine)
