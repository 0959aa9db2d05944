"""How fast the machine runs a row that is set against its prediction, beside its calibration."""

from __future__ import annotations

from xfcost.api.predictions import calibration_of
from xfcost.ledger.measurements import Configuration
from xfcost.ledger.timing_plan import TimingPlan


def relative_pace(configuration: Configuration, timing: TimingPlan) -> float | None:
    """Seconds of a reference product now over those at the calibration.

    None where nothing is set against a prediction, and where the calibration has no such seconds.
    """
    if not timing.checks:
        return None
    from xfcost.torch_models.predicting.calibrate import pace
    from xfcost.torch_models.timing.devices import threads_set, waiting_clock

    device, dtype = configuration.device, configuration.dtype
    calibrated = calibration_of(device, dtype, timing.threads).pace
    with threads_set(configuration.threads):
        return pace(device, dtype, waiting_clock(device)) / calibrated if calibrated else None
