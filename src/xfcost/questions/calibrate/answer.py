"""`xfcost calibrate`: a device is measured for predictions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from xfcost.api.options import read_option
from xfcost.ledger.calibration import Calibration, path_of, write_calibration


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
        from xfcost.torch_models.timing.devices import check_device, cores, products_in, threads_set

        check_device(device, dtype)
        write_calibration(path_of(device, threads or cores(), dtype), None)
        with threads_set(threads or cores()), products_in(dtype, device):
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
