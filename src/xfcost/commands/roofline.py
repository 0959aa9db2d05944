"""`xfcost roofline`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.ledger.options import ONE_PASS, Mode
from xfcost.ledger.timing_options import TIMING_OPTIONS, TimingPlan, timing_plan
from xfcost.report.messages import say

Device = Annotated[str | None, typer.Option("--device", help="Where the systems run: cpu, cuda or mps.")]
Predict = Annotated[
    bool,
    typer.Option(
        "--predict", help="Predict the seconds from the device's calibration (`xfcost calibrate`); nothing is run."
    ),
]
Picture = Annotated[
    Path | None, typer.Option("-o", "--output", help="svg, png, pdf or csv; SYSTEMS-roofline.svg by default.")
]


@shared.timing_options()
@shared.run_options(
    "N", "size", "batch", "dtype", "attention", "mode", "logits", "on",
    mode="forward, prefill, or decode (one more token, its past cached).",
    logits="With --mode prefill: of which positions (default: the last).",
    on="In place of --device: under the roofs of these devices (h100-sxmx8). `xfcost devices` lists them.",
)  # fmt: skip
def run(  # noqa: PLR0913 - options
    specs: Annotated[
        list[str], shared.spec_argument(f"Presets (`common-*` for several) or paths. {shared.OR_MODULES}")
    ],
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    mixing: shared.FindMixing = True,
    device: Device = None,
    predict: Predict = False,
    output: Picture = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """Which operations are memory-bound, log-log.

    Every operation is a point: its arithmetic intensity (FLOP per byte moved) against the FLOP/s that it achieves, its
    colour and marker the mixing kind, its area the share of time. Above the points stand the machine's measured roofs:
    its peak rate, and the bandwidth of its memory times the intensity. They meet at the ridge point: an operation of
    less intensity is memory-bound, one of more compute-bound.
    """
    from xfcost.api.roofline import bounded_rooflines, rooflines
    from xfcost.api.systems import OfModules, open_systems, shared_run
    from xfcost.counting.run_options import make_run
    from xfcost.ledger.roofline import records
    from xfcost.report.console import show
    from xfcost.report.document import to_csv
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.roofline import report
    from xfcost.report.roofline_figure import roofline_bytes

    target = output or shared.default_target(specs, "roofline")
    form = ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=force)
    _check_mode(options["mode"])
    given = {name: options.pop(name) for name in TIMING_OPTIONS}
    how = make_run(**options)
    timing = _plan(device, given, predict=predict) if how.on is None else _not_timed(device, given, predict=predict)
    systems = open_systems(specs, OfModules(inputs, build, batch=options["batch"]), settings, say)
    how = shared_run(how, systems)
    found = (
        rooflines(systems, how, device or "cpu", predict=predict, mixing=mixing, timing=timing, progress=say)
        if how.on is None
        else bounded_rooflines(systems, how)
    )
    show(lambda width: report(found, width))
    content = to_csv([row for one in found for row in records(one)]) if form == ".csv" else roofline_bytes(found, form)
    shared.deliver(content, target, force=force)


def _check_mode(mode: str) -> None:
    """Refuse a mode that is more than one pass: the bytes of an operation are those of one.

    Raises:
        UsageError: it is one of these.
    """
    if mode in get_args(Mode) and mode not in ONE_PASS:
        raise UsageError(
            f"--mode {mode}: a roofline is of one pass, expected {shared.any_of(ONE_PASS)}; `analyze` reports the rest"
        )


def _not_timed(device: str | None, given: Mapping[str, Any], *, predict: bool) -> TimingPlan:
    """The usual plan, which is not used.

    Raises:
        UsageError: options of a timing, or of another way to its seconds, stand beside `--on`.
    """
    names = [*(["device"] if device else []), *(["predict"] if predict else [])]
    names += [name for name, value in given.items() if value not in (None, False)]
    if names:
        raise UsageError(f"--{names[0].replace('_', '-')} with --on: nothing is run or timed; leave one of them out")
    return timing_plan(None, {})


def _plan(device: str | None, given: Mapping[str, Any], *, predict: bool) -> TimingPlan:
    """The plan of the timing; of a prediction only its threads.

    Raises:
        UsageError: no device is given, options of a timing stand beside `--predict`, or the model is to be compiled.
    """
    if given["compile"]:
        raise UsageError("--compile: a compiled model has no operations that are timed apart; leave it out")
    if not predict:
        if device is None:
            raise UsageError(
                "roofline: its operations are timed; say where, as in --device cpu (or --predict, where "
                "`xfcost calibrate` has measured the device)"
            )
        return timing_plan(device, given)
    if timed := [name for name, value in given.items() if name != "threads" and value not in (None, False)]:
        raise UsageError(f"--{timed[0].replace('_', '-')} with --predict: nothing is timed; leave one of them out")
    return timing_plan("cpu", given)
