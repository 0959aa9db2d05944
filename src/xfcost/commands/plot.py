"""`xfcost plot`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from xfcost.api.axes import DEFAULT_RANGE, MARK, axis_of, marked
from xfcost.api.option_readers import one_of
from xfcost.api.options import (
    BatchOptions,
    DeviceOption,
    InputOptions,
    PredictOption,
    SettingsOption,
    TimingOptions,
)
from xfcost.commands import options as shared
from xfcost.commands.from_file import METRICS_OF_FILES, From, Machine, WrittenOptions, plot_file
from xfcost.ledger.errors import NoNumbersError, UsageError
from xfcost.ledger.execution import Mode
from xfcost.report.messages import say
from xfcost.report.metrics import METRICS

if TYPE_CHECKING:
    from xfcost.api.measuring.points import Pointed
    from xfcost.counting.sweep import CountedSweep, SizeAxis
    from xfcost.counting.system import System
    from xfcost.ledger.choosing import ThroughputCurve
    from xfcost.ledger.device import DeviceGroup
    from xfcost.ledger.ledger import Ledger
    from xfcost.ledger.timing_plan import TimingPlan
    from xfcost.spec.run import Run


THROUGHPUT: Final = "throughput"
# The default range of N of language models; those of fewer positions have that of others.
TEXT_RANGE: Final = (1024, 131_072)
FEW_POSITIONS: Final = 8192
# Options of a plot that say nothing of a curve over batches.
_NOT_OVER_BATCHES: Final = ("size", "mark", "device", "predict")
# Predicted points per system.
_PREDICTED_POINTS: Final = 13
# Modes that are one cost at every N.
_DRAWN: Final = ("forward", "decode")

Tokens = Annotated[
    str | None,
    typer.Option(
        "--N",
        metavar="LOW:HIGH",
        help=f"Range of N (default: the part of {DEFAULT_RANGE} that all systems accept; 1024:131072 for language "
        "models). Image specs use square grids. --metric throughput takes one N.",
        rich_help_panel="Size",
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="LOW:HIGH",
        help="Range of image sizes instead of N, as in 224:1024.",
        rich_help_panel="Size",
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        "--metric",
        help=f"What to plot: {', '.join(METRICS)}; with --on {THROUGHPUT} (tokens/s of all samples over tokens/s of "
        f"each); {METRICS_OF_FILES}.",
        autocompletion=shared.words_from((*METRICS, THROUGHPUT)),
    ),
]
Mark = Annotated[
    str | None,
    typer.Option(
        "--mark",
        metavar="INT",
        help=f"Draw a dotted line at this N (default: {MARK} where a system takes images).",
    ),
]
Picture = Annotated[
    Path | None, shared.output_option("Write to this svg, png, pdf or csv file (default: SYSTEMS-METRIC.svg).")
]


@shared.options(
    BatchOptions, "dtype", "attention", "mode", "on", "mfu", "mbu", SettingsOption, InputOptions, "strict",
    DeviceOption, PredictOption, TimingOptions, "lane", "force",
    mode="forward, or decode (one token, with a KV cache).",
    on="With --metric time: plot the lower bound of the time on these devices (h100-sxmx8); --metric throughput "
    "takes several, h100-sxmx8,l40sx16. `xfcost devices` lists names.",
    mfu="With --metric throughput: share of the peak reached (40%).",
    mbu="With --metric throughput: share of the memory bandwidth reached (60%).",
    device="Also run the model on this device and draw its points: cpu, cuda or mps.",
    lane="Time to plot on a GPU: of the whole call (wall), of the host or of the kernels (device, the default).",
    predict="With --metric time: predict the time from a calibration (`xfcost calibrate`).",
)  # fmt: skip
def run(  # noqa: PLR0913 - options
    context: typer.Context,
    specs: Annotated[list[str] | None, shared.SYSTEMS] = None,
    N: Tokens = None,
    size: Size = None,
    metric: Metric = "mixing",
    mark: Mark = None,
    from_: From = None,
    machine: Machine = None,
    output: Picture = None,
    **given: Any,
) -> None:
    """Plot how costs grow with N or the image size, on log-log axes.

    Each system is a line with its fitted slope, next to lines of linear or quadratic growth; image models have a
    mark at N = 784.
    With --size the x axis is the size of square images that the patches divide. With --device the plot adds points of
    the real model: traced, or timed with --metric time. With --metric time --predict the lines are predicted seconds. A
    torch module is counted at a few N; polynomials through these counts give its line.

    Example: xfcost plot vit swin --N 49:12544 -o scaling.svg
    """
    from xfcost.api.runs import make_run, run_options
    from xfcost.api.systems import first_sizes, open_systems, shared_run
    from xfcost.counting.recorded import RecordedModel
    from xfcost.counting.sweep import span_of
    from xfcost.counting.system import SpecSystem
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.plot import chart_bytes
    from xfcost.report.scaling import scaling_chart

    if from_ is not None:
        plot_file(WrittenOptions.of(context))
        return
    specs = shared.counted_specs(context, specs, machine)
    device, predict = given["device"], given["predict"]
    one_of((*METRICS, THROUGHPUT))("--metric", metric)
    if metric == THROUGHPUT:
        _plot_throughput(specs, N, output, given | {"size": size, "mark": mark})
        return
    for share in ("mfu", "mbu"):
        if given[share] is not None:
            raise UsageError(
                f"--{share} with --metric {metric}: no estimate is drawn; only --metric throughput has one"
            )
    metric = _metric_on(metric, given["on"], device, predict=predict)
    _check_metric(metric, device, given["attention"], predict=predict)
    axis, span = axis_of(N, size)
    target = output or shared.default_target(specs, metric)
    form = ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=given["force"])
    timing = _timing(metric, given)
    if metric == "scores":  # fused attention keeps none
        given["attention"] = "eager"
    given["mode"] = _mode(metric, given["mode"])
    how = make_run(**run_options(given))
    systems = open_systems(specs, given | {"on": how.on}, say, counted=True)
    how = shared_run(how, systems)
    if how.default_note is not None:
        say(how.default_note)
    narrow, of_text = N is None and size is None, _context(systems, how)
    span = of_text if narrow and of_text else span
    uncounted = [one for one in systems if not isinstance(one, SpecSystem | RecordedModel)]
    images = any(one.has_images for one in systems if one not in uncounted)
    at = marked(mark, axis, span) if mark is not None or images else None
    for one in uncounted:
        start_module(one, [axis.run(how, x) for x in first_sizes(axis, span, at)], metric, strict=given["strict"])
    sweeps = _sweeps(systems, how, axis, span, at, narrow=narrow)
    if narrow and at is not None:
        at = marked(mark, axis, span_of(sweeps))
    sweeps, live = _pointed(sweeps, how, metric, device, timing)
    lines = [_predicted(one, how, device or "cpu", timing) for one in sweeps] if predict else []
    chart = scaling_chart(sweeps, live, metric, mark=at, predicted=lines)
    content = _csv(sweeps, lines or live) if form == ".csv" else chart_bytes(chart, form)
    shared.deliver_lines(chart.summary)
    shared.deliver(content, target, force=given["force"])


def _context(systems: Sequence[System], run: Run) -> tuple[int, int] | None:
    """The default range of N where all are language models of at least 8k positions; else None."""
    from xfcost.api.systems import text_positions

    low, high = TEXT_RANGE
    high = min(text_positions(one, run, high) for one in systems)
    return (low, high) if high >= FEW_POSITIONS else None


def _timing(metric: str, given: Mapping[str, Any]) -> TimingPlan:
    """How long each point is timed; on a GPU the seconds of kernels are, which repeat within a percent.

    Raises:
        UsageError: an option of a timing can't be, or nothing is timed.
    """
    from xfcost.api.runs import timing_plan

    device = given["device"] or ("cpu" if given["predict"] else None)
    if metric != "time" or device is None:
        return timing_plan(None, given)
    lane = given["lane"] or ("device" if device.startswith("cuda") and not given["predict"] else None)
    return timing_plan(device, {**given, "lane": lane})


def start_module(one: System, runs: Sequence[Run], metric: str, *, strict: bool) -> None:
    """Count a module once, at the first of `runs` at which it runs.

    Raises:
        UsageError: it runs at none.
    """
    from xfcost.api.systems import start

    try:
        start(one, runs, mixing=metric == "mixing", strict=strict, progress=say)
    except NoNumbersError as error:
        raise UsageError(f"--metric mixing: {error}; or --metric macs, which needs no kinds") from error


def _metric_on(metric: str, on: str | None, device: str | None, *, predict: bool) -> str:
    """The metric: with `--on`, `time` is its lower bound.

    Raises:
        UsageError: a bound is to be measured, another metric has devices, or the bound has none.
    """
    if on is None:
        if metric == "least-time":
            raise UsageError("--metric least-time: needs a device, as in --on h100-sxm")
        return metric
    if metric not in {"time", "least-time"}:
        raise UsageError(f"--on with --metric {metric}: a device gives a bound of the time; use --metric time")
    if device is not None or predict:
        raise UsageError(
            f"--on with {'--predict' if predict else '--device'}: a bound is not drawn with other times; "
            "leave one of them out"
        )
    return "least-time"


def _mode(metric: str, mode: str) -> str:
    """The mode that is drawn: a forward or a decode step; that of the metric, where it has one.

    Raises:
        UsageError: another mode, which is more than one cost.
    """
    if mode in get_args(Mode) and mode not in _DRAWN:
        raise UsageError(f"--mode {mode}: expected {' or '.join(_DRAWN)}; `analyze` reports the other modes")
    return METRICS[metric].mode or mode


def _check_metric(metric: str, device: str | None, attention: str | None, *, predict: bool) -> None:
    """Refuse a metric that the run can't have, or that a device can't add to, before any work."""
    if metric == "time" and device is None and not predict:
        raise UsageError("--metric time: time is measured, not counted; add --device cpu to measure it, or --predict")
    if predict and metric != "time":
        raise UsageError(f"--predict with --metric {metric}: only seconds are predicted; use --metric time")
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
    from xfcost.api.accounts import torch_there

    with torch_there("torch", "loading it"):
        from xfcost.torch_models.timing.devices import check_device
    check_device(device)


def _sweeps(
    systems: Sequence[System], run: Run, axis: SizeAxis, span: tuple[int, int], mark: int | None, *, narrow: bool
) -> list[CountedSweep]:
    """Each system counted over the range (with `narrow` over as much of it as all can have), and at the mark.

    A message says where a line has gaps or ends early.
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


def _range_lines(wide: Sequence[CountedSweep], sweeps: Sequence[CountedSweep]) -> Iterator[str]:
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


def _pointed(sweeps: list[CountedSweep], run: Run, metric: str, device: str | None, timing: TimingPlan) -> Pointed:
    """The sweeps with their points of the real models, of all systems in turns where they are timed."""
    from xfcost.api.measuring.points import Pointed, timed_points, traced_points

    if device is None:
        return Pointed(sweeps, [[] for _ in sweeps])
    return timed_points(sweeps, run, device, timing) if metric == "time" else traced_points(sweeps, run)


def _predicted(one: CountedSweep, run: Run, device: str, timing: TimingPlan) -> list[Ledger]:
    """Predicted at some points of the line, without a run."""
    from xfcost.api.accounts import AccountOptions
    from xfcost.api.systems import system_ledger
    from xfcost.counting.sweep import thinned

    say(f"{one.name}: predicting …")
    how = AccountOptions(predict=device, timing=timing)
    runs = [one.axis.run(run, x) for x in thinned(one.xs, _PREDICTED_POINTS)]
    return [system_ledger(one.system, at, how) for at in runs]


def _csv(sweeps: Sequence[CountedSweep], live: Sequence[Sequence[Ledger]]) -> str:
    from xfcost.counting.sweep import records
    from xfcost.report.document import to_csv

    return to_csv([row for one, ledgers in zip(sweeps, live, strict=True) for row in records(one, ledgers)])


def _curves(ledgers: Mapping[str, Ledger], devices: Sequence[DeviceGroup], run: Run) -> list[ThroughputCurve]:
    """A curve for every system and device; those without one are reported.

    Raises:
        UsageError: none of the devices has a curve.
    """
    from xfcost.counting.choosing import throughput

    curves, errors, left_out = [], list[UsageError](), dict[str, list[str]]()
    for name, ledger in ledgers.items():
        for on in devices:
            try:
                curves.append(throughput(name, ledger, on, run.mfu, run.mbu))
            except UsageError as error:
                dtype = ledger.metadata.dtype
                fits = dtype in on.device.peaks
                why = f"a sample of {name} does not fit" if fits else f"no {dtype} peak is known"
                left_out.setdefault(why, []).append(on.name)
                errors.append(error)
    if not curves:
        raise errors[0]
    for why, names in left_out.items():
        say(f"left out, {why}: {', '.join(dict.fromkeys(names))}")
    return curves


def _plot_throughput(specs: Sequence[str], tokens: str | None, output: Path | None, given: Mapping[str, Any]) -> None:
    """Draw tokens per second of all samples over those of each, a line per system and device of `--on`.

    Raises:
        UsageError: there are no devices, one sample does not fit, or an option has no effect.
    """
    from xfcost.api.accounts import AccountOptions
    from xfcost.api.runs import make_run, run_options, timing_plan
    from xfcost.api.systems import open_systems, shared_run, system_ledgers
    from xfcost.counting.comparison import distinct
    from xfcost.counting.devices import read_several
    from xfcost.ledger.choosing import curve_records
    from xfcost.report.document import to_csv
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.throughput_figure import summary, throughput_bytes

    for name in _NOT_OVER_BATCHES:
        if given[name]:
            raise UsageError(f"--{name} with --metric throughput: a line has all batches; leave --{name} out")
    if str(given["batch"]) != "1":
        raise UsageError(f"--batch {given['batch']} with --metric throughput: a line has all batches; leave it out")
    if given["on"] is None:
        raise UsageError("--metric throughput: needs devices, as in --on h100-sxmx8")
    if given["mode"] not in ("decode", "forward"):
        raise UsageError(f"--mode {given['mode']}: --metric throughput needs --mode decode")
    if tokens is not None and ":" in tokens:
        raise UsageError(
            f"--N {tokens} with --metric throughput: a line has all batches; expected one N, as in --N 32k"
        )
    timing_plan(None, given)
    devices = read_several(given["on"])
    target = output or shared.default_target(specs, THROUGHPUT)
    form = ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=given["force"])
    options = dict(given) | {"mode": "decode"}
    run = make_run(**run_options(options) | {"N": tokens, "on": devices[0]})
    systems = open_systems(specs, options | {"on": devices}, say, counted=True)
    run = shared_run(run, systems)
    if run.default_note is not None:
        say(run.default_note)
    how = AccountOptions(orders=False, strict=given["strict"], progress=say)
    ledgers = system_ledgers(systems, run._replace(on=None, mfu=None, mbu=None), how)
    names = distinct([ledger.metadata.name for ledger in ledgers])
    curves = _curves(dict(zip(names, ledgers, strict=True)), devices, run)
    rows = (row for curve in curves for row in curve_records(curve))
    content = to_csv(list(rows)) if form == ".csv" else throughput_bytes(curves, form)
    shared.deliver_lines(summary(curves))
    shared.deliver(content, target, force=given["force"])
