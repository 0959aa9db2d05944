"""The roofs of a machine, and the operations of systems under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from xfcost.api.predictions import calibration_of
from xfcost.api.specs import Progress, accounts
from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import with_operand_bytes
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.roofline import Roofline, roofline
from xfcost.ledger.roofs import Roofs, roofs_of
from xfcost.ledger.timing_options import TimingPlan
from xfcost.spec.default_options import chosen_for
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run


class Found(NamedTuple):
    """The roofs of a machine; where there is no calibration to read them from, why."""

    roofs: Roofs | None
    why: str | None = None


def calibrated_roofs(device: str, dtype: str, threads: int | None) -> Found:
    """The roofs of this machine's calibration; none where there is none, or where it can't be used.

    Raises:
        DeviceError: the device does not exist.
    """
    try:
        found = calibration_of(device, dtype, threads)
    except UsageError as error:
        return Found(None, str(error))
    return Found(roofs_of(found.baseline, found.measured))


def with_roofs(ledger: Ledger, timing: TimingPlan) -> Ledger:
    """A timed ledger with the roofs of its machine, or why they are not known; others as they are."""
    if ledger.timing is None:
        return ledger
    found = calibrated_roofs(ledger.timing.device, ledger.metadata.dtype, timing.threads)
    told = msgspec.structs.replace(ledger.timing, roofs=found.roofs, not_calibrated=found.why)
    return msgspec.structs.replace(ledger, timing=told)


def rooflines(
    loaded: Sequence[Loaded], run: Run, device: str, *, predict: bool, timing: TimingPlan, progress: Progress
) -> list[Roofline]:
    """The operations of each system, timed in turns or predicted, under the roofs of `device`.

    Raises:
        XfcostError: bad input, no such device, a system that doesn't fit on it, no calibration to predict from.
    """
    dtype = chosen_for([one.spec for one in loaded], run).dtype
    ledgers = accounts(
        loaded,
        run,
        trace=False,
        device=None if predict else device,
        predict=device if predict else None,
        timing=timing,
        progress=progress,
        orders=False,
    )
    if predict:
        ledgers = [_with_bytes(ledger, one, run) for ledger, one in zip(ledgers, loaded, strict=True)]
    found = calibrated_roofs(device, dtype, timing.threads)
    if found.why is not None:
        progress(f"{found.why}; its peaks alone are measured now …")
    roofs = found.roofs or _measured_roofs(device, dtype, timing.threads)
    return [roofline(ledger, roofs) for ledger in ledgers]


def _with_bytes(ledger: Ledger, loaded: Loaded, run: Run) -> Ledger:
    from xfcost.torch_models.timing.rows import row_bytes_of

    return with_operand_bytes(ledger, row_bytes_of(place(loaded, run)))


def _measured_roofs(device: str, dtype: str, threads: int | None) -> Roofs:
    from xfcost.torch_models.memory.shortage import memory_may_run_out

    with memory_may_run_out(device, "measuring its peaks"):
        from xfcost.torch_models.predicting.calibrate import peaks
        from xfcost.torch_models.timing.devices import waiting_clock
        from xfcost.torch_models.timing.threads import cores, threads_set

        with threads_set(threads or cores()):
            return roofs_of(peaks(device, dtype, waiting_clock(device)))
