"""The calibration of a device, and the predictions from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from xfcost.ledger.calibration import Calibration, path_of, read_calibration, shipped_calibration, shipped_devices
from xfcost.ledger.errors import UsageError

if TYPE_CHECKING:
    from xfcost.torch_models.predicting.predict import Predictor


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

    check_device(device, dtype)
    with threads_set(threads or cores()):
        machine = this_machine(device, dtype)
    return read_calibration(path_of(device, machine.threads, dtype), machine)
