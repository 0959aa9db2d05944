"""The roofs of a machine, and the operations of systems under them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import msgspec

from xfcost.api.options import RooflineOptions, takes
from xfcost.api.refusals import refuse
from xfcost.api.runs import make_run, run_options, timing_plan
from xfcost.api.systems import mixing_limit, open_systems, shared_run, system_ledger, system_ledgers
from xfcost.counting.devices import device_reported
from xfcost.counting.model_record import forward_record
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, any_of
from xfcost.ledger.execution import ONE_PASS, Mode
from xfcost.ledger.join import with_operand_bytes
from xfcost.ledger.least_work import row_bounds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.roofline import Roofline, roofline_of
from xfcost.ledger.roofs import Roofs, nominal_roofs, roofs_of
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.predictions import calibration_of

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

# Operations without bytes that a message names.
_MOST_NAMED: Final = 3


class CalibratedRoofs(NamedTuple):
    """The roofs of a machine; where there is no calibration to read them from, why."""

    roofs: Roofs | None
    why: str | None = None


def calibrated_roofs(device: str, dtype: str, threads: int | None) -> CalibratedRoofs:
    """The roofs of this machine's calibration; none where there is none, or where it can't be used.

    Raises:
        DeviceError: the device does not exist.
    """
    try:
        found = calibration_of(device, dtype, threads)
    except UsageError as error:
        return CalibratedRoofs(None, str(error))
    return CalibratedRoofs(roofs_of(found.baseline, found.measured))


def with_roofs(ledger: Ledger, timing: TimingPlan) -> Ledger:
    """A timed ledger with the roofs of its machine, or why they are not known; others as they are."""
    if ledger.timing is None:
        return ledger
    found = _known_roofs(ledger.timing.device, ledger.metadata.dtype, timing.threads, ledger.timing.machine)
    told = msgspec.structs.replace(ledger.timing, roofs=found.roofs, not_calibrated=found.why)
    return msgspec.structs.replace(ledger, timing=told)


def _known_roofs(device: str, dtype: str, threads: int | None, machine: str | None) -> CalibratedRoofs:
    """The roofs of the calibration, else those in the figures of the GPU that the driver names `machine`."""
    found = calibrated_roofs(device, dtype, threads)
    if found.roofs is not None or machine is None or not device.startswith("cuda"):
        return found
    gpu = device_reported(machine)
    if gpu is None or dtype not in gpu.peaks:
        return found
    return CalibratedRoofs(nominal_roofs(DeviceGroup(device=gpu), dtype))


@takes(RooflineOptions)
def roofline(
    *specs: str | os.PathLike[str] | torch.nn.Module | tuple[torch.nn.Module, Any],
    **options: Unpack[RooflineOptions],
) -> list[Roofline]:
    """The operations of systems under the roofs of a device: timed or predicted on it, or bounded by its datasheet.

    Args:
        *specs: systems, as `compare` takes them.
        **options: as for `analyze`; one of `device`, `predict` and `on`.

    Returns:
        A Roofline of each system: its `points`, with intensity and rate, and its `roofs`.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    mode, device, predict = options.get("mode", "forward"), options.get("device"), bool(options.get("predict"))
    if mode in get_args(Mode) and mode not in ONE_PASS:
        raise UsageError(
            f"--mode {mode}: a roofline shows one pass; expected {any_of(ONE_PASS)}; `analyze` reports the rest"
        )
    run = make_run(**run_options(options))
    if run.on is not None:
        refuse("roofline --on", options)
    refuse("roofline", options)
    if predict:
        refuse("roofline --predict", options)
    elif device is None and run.on is None:
        raise UsageError(
            "roofline: operations need times; add --device cpu (or --predict, after `xfcost calibrate`, or --on "
            "h100-sxm for lower bounds)"
        )
    timing, progress = timing_plan(device, options, predict=predict), options.get("progress")
    systems = open_systems(specs, {**options, "on": run.on}, progress, counted=run.on is not None)
    run = shared_run(run, systems)
    if run.on is not None:
        how = AccountOptions(orders=False)
        return [bounded_roofline(system_ledger(one, run, how)) for one in systems]
    where = {"predict": device or "cpu"} if predict else {"device": device}
    limit = mixing_limit(options.get("mixing", True), options.get("mixing_limit"))
    how = AccountOptions(**where, timing=timing, progress=progress, orders=False, mixing=limit)
    return under_roofs(system_ledgers(systems, run, how), systems, run, how)


def under_roofs(ledgers: Sequence[Ledger], systems: Sequence[System], run: Run, how: AccountOptions) -> list[Roofline]:
    """The operations of timed or predicted `ledgers` under the roofs of the device.

    They are those of its calibration, else in the figures of a known GPU, else measured now.

    Raises:
        UsageError: the systems have several dtypes.
        XfcostError: there is no such device, or memory runs out.
    """
    if all(ledger.timing is None for ledger in ledgers):
        ledgers = [_with_bytes(ledger, one, run) for ledger, one in zip(ledgers, systems, strict=True)]
    dtypes = {ledger.metadata.dtype: ledger.metadata.name for ledger in ledgers}
    if len(dtypes) > 1:
        each = " and ".join(f"{name} in {dtype}" for dtype, name in dtypes.items())
        raise UsageError(f"roofline: the roofs are of one dtype, and these are {each}; draw them one by one")
    for ledger in ledgers:
        if ledger.timing is not None and ledger.total("seconds") is None:
            raise UsageError(
                f"roofline: {ledger.metadata.name}: operations have no seconds of their own on {ledger.timing.device}"
                f"{', compiled' * ledger.timing.compiled}; time it on cpu or cuda, not compiled"
            )
    (dtype,) = dtypes
    device, threads = how.device or how.predict or "cpu", how.timing.threads
    machine = None if ledgers[0].timing is None else ledgers[0].timing.machine
    found = _known_roofs(device, dtype, threads, machine)
    if found.why is not None:
        how.say(f"{found.why}; only its peaks are measured now …")
    roofs = found.roofs or _measured_roofs(device, dtype, threads)
    return [roofline_of(ledger, roofs) for ledger in ledgers]


def bounded_roofline(ledger: Ledger) -> Roofline:
    """The operations of a ledger at the roofs of its devices.

    Raises:
        UsageError: bytes of products are not known in closed form.
    """
    if ledger.on is None:
        raise TypeError("a roofline on devices needs devices")
    bounds = row_bounds(ledger)
    if unknown := list(dict.fromkeys(row.title for row in ledger.rows if row.macs and row.path not in bounds)):
        some = ", ".join(unknown[:_MOST_NAMED]) + (", …" if len(unknown) > _MOST_NAMED else "")
        raise UsageError(
            f"roofline --on: {ledger.metadata.name}: bytes of its operations are not known in closed form ({some}); "
            "run it (--device cpu) or predict it (--predict), or take --mode decode --attention fused"
        )
    rows = tuple(
        msgspec.structs.replace(row, predicted_seconds=found.least_seconds, operand_bytes=found.least_bytes)
        if (found := bounds.get(row.path)) is not None
        else row
        for row in ledger.rows
    )
    roofs = nominal_roofs(ledger.on.on, ledger.on.dtype)
    return roofline_of(msgspec.structs.replace(ledger, rows=rows), roofs)


def _with_bytes(ledger: Ledger, system: System, run: Run) -> Ledger:
    if system.loaded is None:
        return ledger
    return with_operand_bytes(ledger, forward_record(place(system.loaded, run)).operands)


def _measured_roofs(device: str, dtype: str, threads: int | None) -> Roofs:
    from xfcost.torch_models.memory.shortage import memory_may_run_out

    with memory_may_run_out(device, "measuring its peaks"):
        from xfcost.torch_models.predicting.calibrate import peaks
        from xfcost.torch_models.timing.devices import cores, products_in, threads_set

        with threads_set(threads or cores()), products_in(dtype, device):
            return roofs_of(peaks(device, dtype))
