"""The command of one row, `python -m xfcost.api.measuring.row`: a job on stdin, its answer on stdout."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
from contextlib import nullcontext, suppress
from importlib.metadata import version
from os import _exit  # while a module's code runs, `os._exit` is refused
from pathlib import Path
from typing import NoReturn

import msgspec

from xfcost import __version__
from xfcost.api.measuring.plan import run_of
from xfcost.api.measuring.process import DescribedDevice, RowAnswer, RowJob
from xfcost.api.roofline import with_roofs
from xfcost.api.systems import mixing_limit, named_module
from xfcost.counting.system import AccountOptions
from xfcost.ledger.calibration import training_steps
from xfcost.ledger.errors import DeviceError, NoRoomError, UsageError, XfcostError
from xfcost.ledger.execution import ONE_PASS
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import Configuration, Machine, MeasuredMemory, OfModule, RowOutcome
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.roofline import RooflinePoint, points_of
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.load import load_expanded
from xfcost.spec.placement import place
from xfcost.spec.targets import module_target
from xfcost.systems.predictions import calibration_of, predictors
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

# Letters of an error that is none of ours.
_LONGEST = 300


def main() -> NoReturn:
    """Answer the job, and end at once."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=RowJob)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError):  # where memory runs out, this process goes and not that of the sweep
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    content = msgspec.json.encode(answered(job)) + b"\n"
    with os.fdopen(answers, "wb") as stream:
        stream.write(content)
    _exit(0)  # torch takes a second to unload


def _end_with_parent() -> None:
    """The parent keeps the job's pipe open: when it ends, so does this process, with those that it started."""
    while os.read(0, 1):
        pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    _exit(1)


def answered(job: RowJob) -> RowAnswer:
    """The answer; what can't be is part of it."""
    try:
        described = _described(job)
    except XfcostError as error:
        return RowAnswer(refused=str(error))
    if job.configuration is None:
        return RowAnswer(described=described)
    try:
        return RowAnswer(outcome=_measured(job.configuration, job))
    except NoRoomError as error:
        return RowAnswer(outcome=_without("skipped", error, needed_bytes=error.needed, left_bytes=error.left))
    except Exception as error:  # noqa: BLE001 - a row that fails must not end the sweep
        return RowAnswer(outcome=_without("failed", error))


def _without(status: str, error: Exception, **figures: int) -> RowOutcome:
    """The outcome of a configuration that is not measured."""
    own = isinstance(error, XfcostError)
    reason = str(error) if own else f"{type(error).__name__}: {error}".strip().splitlines()[0][:_LONGEST]
    return RowOutcome(status=status, reason=reason, **figures)  # type: ignore[arg-type]


def _described(job: RowJob) -> DescribedDevice:
    """The device and its machine.

    Raises:
        DeviceError: there is no such device, or torch can't be loaded.
        UsageError: with `--check`, it is not calibrated.
    """
    check_torch_loads()
    with memory_may_run_out("torch", "loading it"):
        import psutil

        from xfcost.torch_models.timing.devices import check_device, cores, machine
    check_device(job.device)
    of_row = (job.configuration.dtype,) if job.timing.checks and job.configuration is not None else ()
    for dtype in (*job.calibrated, *of_row):
        _check_calibrated(job, dtype)
    return DescribedDevice(
        machine=Machine(
            host=platform.node(), processor=machine("cpu"), cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1
        ),
        device_name=machine(job.device),
        threads=cores(),
        versions={"xfcost": __version__, "torch": version("torch"), "python": platform.python_version()},
    )


def _check_calibrated(job: RowJob, dtype: str) -> None:
    """Refuse a device without a calibration that fits."""
    try:
        found = calibration_of(job.device, dtype, job.timing.threads)
        row = job.configuration
        if row is not None and row.mode == "train" and not row.is_module:
            training_steps(found)
    except UsageError as error:
        raise UsageError(f"--check: {error}") from None


def _measured(configuration: Configuration, job: RowJob) -> RowOutcome:
    """Memory first, as predicted, so that nothing is allocated that does not fit; then measured; then the times."""
    from xfcost.torch_models.shared.private_torch import no_compiler

    compiler = nullcontext() if job.timing.compile else no_compiler()
    with memory_may_run_out(configuration.system, f"running it on {configuration.device}"), compiler:
        measured = _measured_spec if job.spec is not None else _measured_module
        ledger, memory = measured(configuration, job)
        ledger = with_roofs(ledger, job.timing)
        pace = relative_pace(configuration, job.timing)
    points: tuple[RooflinePoint, ...] = ()
    if ledger.timing is not None and configuration.mode in ONE_PASS:
        points = points_of(ledger.rows, ledger.timing.share_base, predicted=False)
    return RowOutcome(
        status="measured",
        timing=ledger.timing,
        predicted_seconds=ledger.prediction.seconds if ledger.prediction else None,
        pace=pace,
        seconds_by_mixing=seconds_by_mixing(ledger),
        memory=memory,
        points=points or None,  # of operations that were timed one by one
    )


def _measured_spec(configuration: Configuration, job: RowJob) -> tuple[Ledger, MeasuredMemory | None]:
    from xfcost.torch_models.timing.devices import threads_set
    from xfcost.torch_models.timing.growth import memory_of
    from xfcost.torch_models.timing.systems import SystemOnDevice, TimedSystem

    timing, run, on = job.timing, run_of(configuration), configuration.device
    loaded = load_expanded(str(job.spec), configuration.target)
    system, how = SpecSystem(loaded), AccountOptions(orders=False)
    counted = system.account(run, how)
    memory = None
    if not timing.composed:  # there the whole need not fit
        with threads_set(configuration.threads):
            one = SystemOnDevice(TimedSystem(place(loaded, run), counted), on)
            memory = memory_of(one, on, backward=counted.training is not None)
    predict = on if timing.checks else None
    return system.account(run, how._replace(device=on, predict=predict, timing=timing)), memory


def _measured_module(configuration: Configuration, job: RowJob) -> tuple[Ledger, MeasuredMemory | None]:
    from xfcost.systems.module import lengths_of
    from xfcost.torch_models.any_model.ledger import How
    from xfcost.torch_models.timing.devices import threads_set

    target, of, timing = module_target(configuration.target), configuration.module, job.timing
    if target is None or not isinstance(of, OfModule):
        raise TypeError("expected the configuration of a torch module")
    run, device = run_of(configuration), configuration.device
    module, lengths = named_module(target, of.inputs, of.build, configuration.batch), lengths_of(run)
    how = How(trace=False, closed_form=False, plan=run.plan)
    with threads_set(configuration.threads):
        counted = module.ledger(lengths, how)
        if module.fingerprint() != configuration.spec_hash:
            raise DeviceError(f"{configuration.target}: it was changed after this command had read it; give it again")
        memory = module.memory(lengths, counted, device, run.plan)
    checked = timing.checks and run.plan is None  # of a module a forward is predicted
    foresee = predictors(device, timing.threads) if checked else None
    timed = how._replace(mixing=mixing_limit(of.mixing), device=device, timing=timing, predict=foresee)
    return module.ledger(lengths, timed), memory


def relative_pace(configuration: Configuration, timing: TimingPlan) -> float | None:
    """Seconds of a reference product now over those at the calibration: how fast the machine runs just now.

    None where nothing is set against a prediction, and where the calibration has no such seconds.
    """
    if not timing.checks:
        return None
    from xfcost.torch_models.predicting.calibrate import pace
    from xfcost.torch_models.timing.devices import products_in, threads_set, waiting_clock

    device, dtype = configuration.device, configuration.dtype
    calibrated = calibration_of(device, dtype, timing.threads).pace
    with threads_set(configuration.threads), products_in(dtype, device):
        return pace(device, dtype, waiting_clock(device)) / calibrated if calibrated else None


def seconds_by_mixing(ledger: Ledger) -> dict[str, float] | None:
    """Seconds of all rows of each mixing kind; None where no rows were timed, or kinds are not known."""
    if ledger.total("seconds") is None or not ledger.has_kinds:
        return None
    return {kind: ledger.total("seconds", lambda row, kind=kind: row.mixing == kind) or 0.0 for kind in MIXINGS}  # type: ignore[misc]


if __name__ == "__main__":
    main()
