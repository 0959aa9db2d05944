"""How costs grow with N or the image size: systems counted, predicted or measured at many sizes, and drawn."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from xfcost.api.axes import axis_of, listed_sizes, marked
from xfcost.api.options import EVERY, PlotOptions, Progress, flag_of, read_option, takes
from xfcost.api.refusals import refuse
from xfcost.api.runs import make_run, run_options, timing_plan
from xfcost.api.systems import first_sizes, mixing_limit, open_systems, shared_run, system_ledger, system_ledgers
from xfcost.comparing.comparison import distinct
from xfcost.comparing.sweep import (
    CountedSweep,
    SizeAxis,
    common_range,
    records,
    span_of,
    sweep,
    thinned,
)
from xfcost.counting.devices import read_several
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import NoNumbersError, UsageError
from xfcost.ledger.execution import Mode
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.option_readers import named_by, one_of
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.parts.serving.choices import ThroughputCurve
from xfcost.parts.serving.choosing import throughput
from xfcost.questions.plot.points import Pointed, timed_points, traced_points
from xfcost.questions.plot.throughput_figure import summary, throughput_bytes
from xfcost.report.document import to_csv
from xfcost.report.figure import FIGURES
from xfcost.report.output import check_target, ending_of, write_whole
from xfcost.spec.run import Run
from xfcost.systems.spec import torch_there
from xfcost.views.metrics import METRICS, THROUGHPUT
from xfcost.views.plot import chart_bytes
from xfcost.views.scaling import scaling_chart, skipped_text

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

# The default range of N of language models; those of fewer positions have that of others.
TEXT_RANGE: Final = (1024, 131_072)
FEW_POSITIONS: Final = 8192
# Options of a plot that say nothing of a curve over batches.
_NOT_OVER_BATCHES: Final = ("size", "mark", "device", "predict")
# Predicted points per system.
_PREDICTED_POINTS: Final = 13
# Modes that are one cost at every N.
_DRAWN: Final = ("forward", "decode")


class Plot(NamedTuple):
    """A plot that is not yet written."""

    summary: Sequence[str]
    """Lines of text: slopes, ratios, crossovers."""
    records: Callable[[], list[dict[str, Any]]]
    """Makes `rows`."""
    picture: Callable[[str], bytes]
    """The ending of a file -> its bytes: `.svg`, `.png`, `.pdf`."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The points of its lines, and those that were measured."""
        return self.records()

    def content(self, ending: str) -> str | bytes:
        """What a file with this ending has: a picture, or rows as CSV.

        Raises:
            UsageError: no file of a plot has it.
        """
        one_of((*FIGURES, ".csv"))("content", ending)
        return to_csv(self.rows) if ending == ".csv" else self.picture(ending)

    def _repr_svg_(self) -> str:
        """The picture, in a notebook."""
        return self.picture(".svg").decode()


@takes(PlotOptions)
def plot(
    *specs: str | os.PathLike[str] | torch.nn.Module | tuple[torch.nn.Module, Any],
    metric: str = "mixing",
    N: int | str | None = None,
    size: str | None = None,
    mark: int | str | None = None,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Unpack[PlotOptions],
) -> Plot:
    """How a cost grows with N or the image size: a line of each system on log-log axes.

    Args:
        *specs: systems, as `compare` takes them.
        metric: what is plotted, as on the command line.
        N: the range "49:12544", or each N, "196,784"; as much of that range as all systems can have by default. One N
            with metric="throughput".
        size: the range of image sides instead of N, "224:1024", or each of them, "224,384".
        mark: the N of the dotted line.
        output: an svg, png, pdf or csv file to write.
        force: overwrite the file where it exists.
        **options: as for `analyze`; with `device` points of the real model are measured.

    Returns:
        The Plot: its `summary`, the `rows` of its lines, and its `content` in a form.

    Raises:
        XfcostError: bad input; the message says what was expected and how to mend it.
    """
    metrics = (*METRICS, THROUGHPUT)
    meant = named_by(metric, metrics)
    metric = one_of(metrics)("--metric", meant[0] if len(meant) == 1 else metric)
    N, size, mark = (one if one is None else str(one) for one in (N, size, mark))
    given = {name: EVERY[name].default for name in PlotOptions.__annotations__} | dict(options)
    refuse("plot", given)
    say: Progress = given["progress"] or (lambda text: None)
    target = None if output is None else Path(output)
    form = "" if target is None else ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=force)
    if metric == THROUGHPUT:
        found = _throughput(specs, N, given | {"size": size, "mark": mark}, say)
    else:
        found = _scaling(specs, metric, (N, size, mark), given, say)
    if target is not None:
        content = found.content(form)
        write_whole(target, content.encode() if isinstance(content, str) else content, force=force)
    return found


def _scaling(
    specs: Sequence[Any], metric: str, over: tuple[str | None, ...], given: dict[str, Any], say: Progress
) -> Plot:  # fmt: skip
    """A line per system over `over`: N, size and mark as they are given."""
    N, size, mark = over
    device, predict = given["device"], given["predict"]
    for share in ("mfu", "mbu"):
        if given[share] is not None:
            raise UsageError(
                f"--{share} with --metric {metric}: no estimate is drawn; only --metric throughput has one"
            )
    for name in ("memory_share", "cache_blocks"):
        if given[name] is not None:
            raise UsageError(
                f"{flag_of(name)} with --metric {metric}: what fits is no part of it; only --metric throughput ends "
                "where memory does"
            )
    metric = _metric_on(metric, given["on"], device, predict=predict)
    _check_metric(metric, device, given["attention"], predict=predict)
    axis, span = axis_of(N, size)
    timing = _timing(metric, given)
    if metric == "scores":  # fused attention keeps none
        given["attention"] = "eager"
    given["mode"] = _mode(metric, given["mode"])
    how = make_run(**run_options(given))
    most = {} if N is None or size is not None else {"N": max(listed_sizes(N) or span)}
    systems = open_systems(specs, given | {"on": how.on} | most, say, counted=True)
    for line in remarks_of(systems):
        say(line)
    how = shared_run(how, systems)
    if how.default_note is not None:
        say(how.default_note)
    listed = listed_sizes(N if size is None else size)
    narrow, of_text = N is None and size is None, _context(systems, how)
    span = of_text if narrow and of_text else span
    images = any(one.has_images for one in systems)
    # parameters hardly depend on N: there is no ratio to show at one
    at = marked(mark, axis, span, listed) if mark is not None or (images and metric != "params") else None
    _start(
        systems,
        [axis.run(how, x) for x in listed or first_sizes(axis, span, at)],
        metric,
        strict=given["strict"],
        say=say,
    )
    sweeps = _sweeps(systems, how, axis, span, at, say, narrow=narrow, listed=listed)
    if narrow and at is not None:
        at = marked(mark, axis, span_of(sweeps))
    sweeps, live = _pointed(sweeps, how, metric, device, timing, say)
    lines = [_predicted(one, how, device or "cpu", timing, say) for one in sweeps] if predict else []
    chart = scaling_chart(sweeps, live, metric, mark=at, predicted=lines)

    def rows() -> list[dict[str, Any]]:
        return [row for one, ledgers in zip(sweeps, lines or live, strict=True) for row in records(one, ledgers)]

    return Plot(chart.summary, rows, partial(chart_bytes, chart))


def remarks_of(systems: Sequence[System]) -> Iterator[str]:
    """As what files of hyperparameters were read, and of which specs learned positions were added."""
    for one in systems:
        yield from () if one.loaded is None else (f"{one.name}: {remark}" for remark in one.loaded.remarks)


def _context(systems: Sequence[System], run: Run) -> tuple[int, int] | None:
    """The default range of N where all are language models of at least 8k positions; else None."""
    low, high = TEXT_RANGE
    high = min(one.positions_up_to(high, run) for one in systems)
    return (low, high) if high >= FEW_POSITIONS else None


def _timing(metric: str, given: Mapping[str, Any]) -> TimingPlan:
    """How long each point is timed; on a GPU the seconds of kernels are, which repeat within a percent.

    Raises:
        UsageError: an option of a timing can't be, or nothing is timed.
    """
    device = given["device"] or ("cpu" if given["predict"] else None)
    if metric != "time" or device is None:
        return timing_plan(None, given)
    lane = given["lane"] or ("device" if device.startswith("cuda") and not given["predict"] else None)
    return timing_plan(device, {**given, "lane": lane})


def _start(systems: Sequence[System], runs: Sequence[Run], metric: str, *, strict: bool, say: Progress) -> None:
    """Count modules once, each at the first of `runs` at which it runs.

    Raises:
        UsageError: one runs at none.
    """
    how = AccountOptions(orders=False, strict=strict, mixing=mixing_limit(metric == "mixing"), progress=say)
    for one in systems:
        try:
            one.start(runs, how)
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
    with torch_there("torch", "loading it"):
        from xfcost.torch_models.timing.devices import check_device
    check_device(device)


def _sweeps(  # noqa: PLR0913 - what is swept
    systems: Sequence[System],
    run: Run,
    axis: SizeAxis,
    span: tuple[int, int],
    mark: int | None,
    say: Progress,
    *,
    narrow: bool,
    listed: Sequence[int],
) -> list[CountedSweep]:
    """Each system counted over the range (with `narrow` over as much of it as all can have), and at the mark.

    With `listed` sizes at these alone.

    A message says where a line has gaps or ends early.
    """
    names = distinct([one.name for one in systems])
    extra = [] if mark is None else [mark]
    wide = [sweep(name, one, run, span, extra, axis, listed=listed) for name, one in zip(names, systems, strict=True)]
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
    low, high = span_of(sweeps)
    axis = sweeps[0].axis
    first, last = max(one.xs[0] for one in wide), min(one.xs[-1] for one in wide)
    ends = {one.name: one.ended for one in wide if one.ended and one.xs[-1] == last}
    limits = {name: found[1] for name, why in ends.items() if (found := re.search(r"do not fit (\d+) positions", why))}
    words = f"{axis.word} = {low:,} to {high:,}{', where all systems can run' if len(wide) > 1 else ''}"
    words += f" ({', '.join(f'{name} has {int(most):,} positions' for name, most in limits.items())})" if limits else ""
    yield f"{words}; {axis.option} LOW:HIGH for another range"
    for one in wide:
        if one.xs[0] == first and min(one.skipped, default=first) < first:
            yield f"{one.name} has no {axis.word} below {first:,}: {next(iter(one.skipped.values()))}"
        if one.name in ends and one.name not in limits:
            yield f"{one.name} ends at {axis.word} = {last:,}: {one.ended}"


def _pointed(
    sweeps: list[CountedSweep], run: Run, metric: str, device: str | None, timing: TimingPlan, say: Progress
) -> Pointed:
    """The sweeps with their points of the real models, of all systems in turns where they are timed."""
    if device is None:
        return Pointed(sweeps, [[] for _ in sweeps])
    if metric == "time":
        return timed_points(sweeps, run, device, timing, say)
    return traced_points(sweeps, run, say)


def _predicted(one: CountedSweep, run: Run, device: str, timing: TimingPlan, say: Progress) -> list[Ledger]:
    """Predicted at some points of the line, without a run."""
    say(f"{one.name}: predicting …")
    how = AccountOptions(predict=device, timing=timing)
    runs = [one.axis.run(run, x) for x in thinned(one.xs, _PREDICTED_POINTS)]
    return [system_ledger(one.system, at, how) for at in runs]


def _curves(ledgers: Mapping[str, Ledger], run: Run, say: Progress) -> list[ThroughputCurve]:
    """A curve for every system and device of the run; those without one are reported.

    Raises:
        UsageError: none of the devices has a curve.
    """
    curves, errors, left_out = [], list[UsageError](), dict[str, list[str]]()
    for name, ledger in ledgers.items():
        found = {choice.asked.name: choice for choice in ledger.choices}
        for on in run.choices:
            try:
                curves.append(throughput(name, ledger, found[on.name], run))
            except UsageError as error:
                why = found[on.name].reason or f"a sample of {name} does not fit"
                left_out.setdefault(why, []).append(on.name)
                errors.append(error)
    if not curves:
        raise errors[0]
    for why, names in left_out.items():
        say(f"left out, {why}: {', '.join(dict.fromkeys(names))}")
    return curves


def _throughput(specs: Sequence[Any], tokens: str | None, given: Mapping[str, Any], say: Progress) -> Plot:
    """Tokens per second of all samples over those of each, a line per system and device of `--on`.

    Raises:
        UsageError: there are no devices, one sample does not fit, or an option has no effect.
    """
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
    share = read_option("memory_share", given["memory_share"])
    devices = tuple(one.with_memory_share(share) for one in read_several(given["on"]))
    options = dict(given) | {"mode": "decode"}
    run = make_run(**run_options(options) | {"N": tokens, "on": devices[0]})
    systems = open_systems(specs, options | {"on": devices}, say, counted=True)
    run = shared_run(run, systems)
    if run.default_note is not None:
        say(run.default_note)
    how = AccountOptions(orders=False, strict=given["strict"], progress=say)
    # whatever the rate of each sample: their largest batch is that which fits
    run = run._replace(on=None, choices=devices, tokens_per_user=0)
    ledgers = system_ledgers(systems, run, how)
    names = distinct([ledger.metadata.name for ledger in ledgers])
    curves = _curves(dict(zip(names, ledgers, strict=True)), run, say)

    def rows() -> list[dict[str, Any]]:
        return [row for curve in curves for row in curve.records()]

    return Plot(list(summary(curves)), rows, partial(throughput_bytes, curves))
