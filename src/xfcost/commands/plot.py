"""`xfcost plot`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from xfcost.commands import options as shared
from xfcost.commands.from_file import METRICS_OF_FILES, or_from_file, plot_file
from xfcost.commands.plotted_modules import Plotted, start_modules
from xfcost.commands.plotted_points import Pointed, timed_points, traced_points
from xfcost.commands.ranges import DEFAULT_RANGE, MARK, axis_of, marked
from xfcost.ledger.errors import UsageError
from xfcost.ledger.option_readers import one_of
from xfcost.ledger.options import Mode
from xfcost.report.messages import say
from xfcost.report.metrics import METRICS

if TYPE_CHECKING:
    from xfcost.counting.sweep import Axis, Sweep
    from xfcost.counting.system import System
    from xfcost.ledger.ledger import Ledger
    from xfcost.ledger.timing_options import TimingPlan
    from xfcost.spec.run import Run


# Predicted points per system.
_PREDICTED_POINTS: Final = 13
# Modes that are one cost at every N.
_DRAWN: Final = ("forward", "decode")

Tokens = Annotated[
    str | None,
    typer.Option(
        "--N",
        metavar="LOW:HIGH",
        help=f"Range of N (by default as much of {DEFAULT_RANGE} as all can have); image specs take square grids.",
    ),
]
Size = Annotated[
    str | None, typer.Option("--size", metavar="LOW:HIGH", help="Range of image sizes in place of N, as in 224:1024.")
]
Metric = Annotated[str, typer.Option("--metric", help=f"One of {', '.join(METRICS)}; {METRICS_OF_FILES}.")]
Mark = Annotated[
    str | None, typer.Option("--mark", metavar="INT", help=f"Dotted line here; at N = {MARK} where that is in range.")
]
Points = Annotated[
    str | None, typer.Option("--device", help="Points of the real model over the formulas: cpu, cuda or mps.")
]
Predict = Annotated[
    bool, typer.Option("--predict", help="With --metric time: predict, from the device's calibration (`calibrate`).")
]
Picture = Annotated[
    Path | None, typer.Option("-o", "--output", help="svg, png, pdf or csv; SYSTEMS-METRIC.svg by default.")
]


@or_from_file(plot_file)
@shared.timing_options()
@shared.run_options(
    "batch", "dtype", "attention", "mode", "on",
    mode="forward, or decode (one more token, its past cached).",
    on="With --metric time: the least time on a device, or on several (h100-sxmx8). `xfcost devices` lists them.",
)  # fmt: skip
def run(  # noqa: PLR0913 - options
    specs: Annotated[
        list[str], shared.spec_argument(f"Presets (`common-*` for several) or paths. {shared.OR_MODULES}")
    ],
    N: Tokens = None,
    size: Size = None,
    metric: Metric = "mixing",
    mark: Mark = None,
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    strict: shared.Strict = False,
    device: Points = None,
    predict: Predict = False,
    output: Picture = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """How costs grow with N or with the image's size, log-log.

    One line per system with its fitted slope, beside those of a quadratic and a linear cost, and a mark at N = 784
    where it is in range. Over image sizes (--size) every system takes the square images that its patches fit.
    With --device, points of the real model stand over the formulas: traced by fvcore, or timed with --metric time,
    all systems in turns at each N.
    With --metric time --predict the lines are seconds predicted from the device's calibration.
    A torch module is counted at some N (and its kinds found, for the metric mixing), with polynomials between them.
    """
    from xfcost.api.systems import OfModules, open_systems, shared_run
    from xfcost.counting.run_options import make_run
    from xfcost.counting.sweep import span_of
    from xfcost.ledger.timing_options import TIMING_OPTIONS, timing_plan
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.plot import chart_bytes
    from xfcost.report.scaling import scaling_chart

    one_of("--metric", METRICS)(metric)
    metric = _metric_on(metric, options.get("on"), device, predict=predict)
    _check_metric(metric, device, options.get("attention"), predict=predict)
    axis, span = axis_of(N, size)
    target = output or shared.default_target(specs, metric)
    form = ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=force)
    given = N is not None or size is not None
    at = marked(mark, axis, span)
    timing = timing_plan(
        (device or ("cpu" if predict else None)) if metric == "time" else None,
        {name: options.pop(name, None) for name in TIMING_OPTIONS},
    )
    if metric == "scores":  # fused attention keeps none
        options["attention"] = "eager"
    how = make_run(**options | {"mode": _mode(metric, options.get("mode", "forward"))})
    systems = open_systems(specs, OfModules(inputs, build, batch=options.get("batch", 1)), settings, say)
    how = shared_run(how, systems)
    if how.default_note is not None:
        say(how.default_note)
    start_modules(systems, how, Plotted(metric, axis, span, at), strict=strict)
    sweeps = _sweeps(systems, how, axis, span, at, narrow=not given)
    if not given:
        at = marked(mark, axis, span_of(sweeps))
    sweeps, live = _pointed(sweeps, how, metric, device, timing)
    lines = [_predicted(one, how, device or "cpu", timing) for one in sweeps] if predict else []
    chart = scaling_chart(sweeps, live, metric, mark=at, predicted=lines)
    content = _csv(sweeps, lines or live) if form == ".csv" else chart_bytes(chart, form)
    shared.deliver_lines(chart.summary)
    shared.deliver(content, target, force=force)


def _metric_on(metric: str, on: str | None, device: str | None, *, predict: bool) -> str:
    """The metric: with `--on`, `time` is its lower bound.

    Raises:
        UsageError: a bound is to be measured, another metric has devices, or the bound has none.
    """
    if on is None:
        if metric == "least-time":
            raise UsageError("--metric least-time: on which device? Name it, as in --on h100-sxm")
        return metric
    if metric not in {"time", "least-time"}:
        raise UsageError(f"--on with --metric {metric}: a device bounds the time; give --metric time")
    if device is not None or predict:
        raise UsageError(f"--on with {'--predict' if predict else '--device'}: a bound is drawn alone; leave one out")
    return "least-time"


def _mode(metric: str, mode: str) -> str:
    """The mode that is drawn: a forward or a decode step; that of the metric, where it has one.

    Raises:
        UsageError: another mode, which is more than one cost.
    """
    if mode in get_args(Mode) and mode not in _DRAWN:
        raise UsageError(f"--mode {mode}: a line is drawn of {' or '.join(_DRAWN)}; `analyze` reports the others")
    return METRICS[metric].mode or mode


def _check_metric(metric: str, device: str | None, attention: str | None, *, predict: bool) -> None:
    """Refuse a metric that the run can't have, or that a device can't add to, before any work."""
    if metric == "time" and device is None and not predict:
        raise UsageError(
            "--metric time: time is measured, not counted; say where, as in --device cpu, or give --predict"
        )
    if predict and metric != "time":
        raise UsageError(f"--predict with --metric {metric}: seconds are predicted; give --metric time")
    if metric == "scores" and attention not in (None, "eager"):
        raise UsageError(f"--metric scores: {attention} attention keeps no matrix of scores; leave --attention out")
    if device is None:
        return
    if metric == "scores":
        raise UsageError("--device with --metric scores: scores are counted, not traced or timed; leave --device out")
    if metric in {"attention-memory", "cache"}:
        raise UsageError(
            f"--device with --metric {metric}: a run shows the peak of all tensors, never these "
            f"alone; leave --device out here, and see that peak with `xfcost analyze SPEC --device {device}`"
        )
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out("torch", "loading it"):
        from xfcost.torch_models.timing.devices import check_device
    check_device(device)


def _sweeps(
    systems: Sequence[System], run: Run, axis: Axis, span: tuple[int, int], mark: int | None, *, narrow: bool
) -> list[Sweep]:
    """Each system counted over the range (with `narrow` over as much of it as all can have), and at the mark.

    Where a line has gaps or ends early, that is said.
    """
    from xfcost.counting.comparison import distinct
    from xfcost.counting.sweep import common_range, sweep
    from xfcost.report.scaling import skipped_text

    names = distinct([one.name for one in systems])
    extra = [] if mark is None else [mark]
    wide = [sweep(name, one, run, span, extra, axis) for name, one in zip(names, systems, strict=True)]
    sweeps = common_range(wide, run) if narrow else wide
    if narrow:
        for line in _range_lines(wide, sweeps):
            say(line)
    for one in sweeps:
        if one.skipped:
            say(skipped_text(one))
        if one.ended:
            say(f"{one.name}: its line ends at {axis.word} = {one.xs[-1]:,}: {one.ended}")
    return sweeps


def _range_lines(wide: Sequence[Sweep], sweeps: Sequence[Sweep]) -> Iterator[str]:
    """The range of the plot, and of every system that has no more of the default range why."""
    from xfcost.counting.sweep import span_of

    low, high = span_of(sweeps)
    axis = sweeps[0].axis
    yield f"{axis.word} = {low:,} to {high:,}, the range that all systems have; {axis.option} LOW:HIGH sets another"
    first, last = max(one.xs[0] for one in wide), min(one.xs[-1] for one in wide)
    for one in wide:
        if one.xs[0] == first and min(one.skipped, default=first) < first:
            yield f"{one.name} has no {axis.word} below {first:,}: {next(iter(one.skipped.values()))}"
        if one.ended and one.xs[-1] == last:
            yield f"{one.name} ends at {axis.word} = {last:,}: {one.ended}"


def _pointed(sweeps: list[Sweep], run: Run, metric: str, device: str | None, timing: TimingPlan) -> Pointed:
    """The sweeps with their points of the real models, of all systems in turns where they are timed."""
    if device is None:
        return Pointed(sweeps, [[] for _ in sweeps])
    return timed_points(sweeps, run, device, timing) if metric == "time" else traced_points(sweeps, run)


def _predicted(one: Sweep, run: Run, device: str, timing: TimingPlan) -> list[Ledger]:
    """Predicted at some points of the line, without a run."""
    from xfcost.api.systems import system_ledger
    from xfcost.counting.sweep import thinned

    say(f"{one.name}: predicting …")
    runs = [one.axis.run(run, x) for x in thinned(one.xs, _PREDICTED_POINTS)]
    return [system_ledger(one.system, at, predict=device, timing=timing) for at in runs]


def _csv(sweeps: Sequence[Sweep], live: Sequence[Sequence[Ledger]]) -> str:
    from xfcost.counting.sweep_records import records
    from xfcost.report.document import to_csv

    return to_csv([row for one, ledgers in zip(sweeps, live, strict=True) for row in records(one, ledgers)])
