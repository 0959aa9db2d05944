"""`--from runs.jsonl` of `plot`, `compare` and `roofline`: rows that `xfcost measure` kept, drawn as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from xfcost.api.axes import marked, measured_axis
from xfcost.api.options import read_option
from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError
from xfcost.ledger.option_readers import one_of
from xfcost.ledger.read_numbers import whole_number
from xfcost.report.messages import say

if TYPE_CHECKING:
    from xfcost.comparing.measured import MeasuredSeries
    from xfcost.comparing.measured_series import Choice
    from xfcost.ledger.metadata import Lane

From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Use rows saved by `xfcost measure --save` instead of measuring. SPECS choose systems of the file "
        "(default: all); --device, --threads, --dtype, --batch, --attention, --mode, --N or --size choose rows.",
    ),
]
Machine = Annotated[str | None, shared.option("--machine", "HOST", "With --from: use only the rows of this machine.")]

METRICS_OF_FILES: Final = "with --from time (the default), mixing-time, memory or activations"

# Options that choose rows by a word of theirs.
_WORDS: Final = ("machine", "device", "threads", "dtype", "batch", "attention", "mode", "compile", "composed")
_FLAGS: Final = {"compile": "compiled", "composed": "composed"}
_READ: Final = ("dtype", "batch", "attention", "mode")
_ANYWAY: Final = {"specs", "from_", "machine", "N", "size", "output", "force", "lane", *_WORDS}
_MOST_THREADS: Final = 2**16


class WrittenOptions(NamedTuple):
    """What was written on the command line."""

    options: Mapping[str, Any]
    """Every option that was given -> its value."""
    flags: Mapping[str, str]
    """Option -> how it is written."""

    @classmethod
    def of(cls, context: typer.Context) -> WrittenOptions:
        """Of all options of a command those that were given."""
        given = {name: value for name, value in context.params.items() if shared.is_given(context, name)}
        given |= {name: Path(given[name]) for name in ("from_", "output", "picture") if given.get(name) is not None}
        return cls(given, {one.name or "": one.opts[0] for one in context.command.params})

    def refuse_others(self, known: set[str]) -> None:
        """Refuse options that measure or count.

        Raises:
            UsageError: one was given that rows of a file have no use for.
        """
        for name in self.options:
            if name not in known:
                raise UsageError(
                    f"--from and {self.flags[name]}: rows of a file are drawn and compared as they were measured; "
                    f"leave {self.flags[name]} out, or measure again with `xfcost measure`"
                )


def choice_of(given: WrittenOptions, lane: Lane | None) -> Choice:
    """The rows that the options choose, with the seconds of a `lane` where --lane names none.

    Raises:
        UsageError: an option can't be.
    """
    from xfcost.comparing.measured_series import Choice

    options = given.options
    fields = {name: _words(name, options[name]) for name in _WORDS if name in options}
    axis, span = None, None
    if options.get("N") is not None or options.get("size") is not None:
        axis, span = measured_axis(options.get("N"), options.get("size"))
    lane = read_option("lane", options.get("lane")) or lane
    return Choice(tuple(options.get("specs") or ()), fields, axis, span, lane)


def _words(name: str, value: Any) -> tuple[str, ...]:
    """The words of rows that an option takes: `8,16` -> ("8", "16")."""
    if name in _FLAGS:
        return (_FLAGS[name] if value else f"not {_FLAGS[name]}",)
    parts = [part.strip() for part in str(value).split(",")]
    if name in _READ:
        parts = [str(read_option(name, part)) for part in parts]
    if name == "threads":
        parts = [str(whole_number("--threads", part, least=1, most=_MOST_THREADS, example="2")) for part in parts]
    return tuple(parts)


def compare_file(given: WrittenOptions) -> None:
    """`xfcost compare --from FILE [SYSTEM …]`."""
    from xfcost.views.measured_compare import document

    options = given.options
    given.refuse_others(_ANYWAY | {"format_"})
    target = shared.target_of({"format_": None, **options})
    found = _found(given, "wall")
    if not found.pairs:
        (only,) = [one.name for one in found.series if one.rows]
        raise UsageError(
            f"compare --from {found.file}: there is one series, {only}, and a comparison has two sides; name another "
            "system, or draw it: `xfcost plot --from`"
        )
    target.document(document(found))


def plot_file(given: WrittenOptions) -> None:
    """`xfcost plot --from FILE [SYSTEM …]`."""
    from xfcost.comparing.measured_series import METRICS
    from xfcost.report.figure import FIGURES
    from xfcost.report.output import check_target, ending_of
    from xfcost.views.measured_compare import points_csv
    from xfcost.views.plot import chart_bytes
    from xfcost.views.scaling import measured_chart

    options = given.options
    given.refuse_others(_ANYWAY | {"metric", "mark"})
    metric = one_of(METRICS)("--metric", options.get("metric", "time"))
    target = options.get("output") or Path(f"{_stem(options['from_'])}-{metric}.svg")
    force = bool(options.get("force"))
    form = ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=force)
    found = _found(given, None)
    chart = measured_chart(found, metric, _mark(options.get("mark"), found))
    shared.deliver_lines(chart.summary)
    shared.deliver(points_csv(found) if form == ".csv" else chart_bytes(chart, form), target, force=force)


def roofline_file(given: WrittenOptions) -> None:
    """`xfcost roofline --from FILE [SYSTEM …]`."""
    from xfcost.api.measured import saved_rooflines
    from xfcost.counting.devices import read_devices
    from xfcost.views.roofline import document
    from xfcost.views.roofline_figure import roofline_bytes

    options = dict(given.options)
    given.refuse_others(_ANYWAY | {"picture", "format_", "columns", "on"})
    if not {"picture", "format_"} & set(options):
        options["picture"] = Path(f"{_stem(options['from_'])}-roofline.svg")
    target = shared.target_of({"format_": None, **options})
    on = None if options.get("on") is None else read_devices(options["on"])
    found = saved_rooflines(options["from_"], choice_of(given, "wall"), on, say)
    target.document(document(found), lambda ending: roofline_bytes(found, ending))


def _found(given: WrittenOptions, lane: Lane | None) -> MeasuredSeries:
    from xfcost.api.measured import measured_file

    return measured_file(given.options["from_"], choice_of(given, lane), say)


def _stem(path: Path) -> str:
    return re.sub(r"[^\w.-]", "", path.stem) or "runs"


def _mark(mark: str | None, found: MeasuredSeries) -> int | None:
    """The dotted line, as in other plots."""
    from xfcost.comparing.measured_series import at

    xs = [at(row, one.axis) for one in found.series for row in one.rows]
    return marked(mark, found.axis, (min(xs), max(xs)))
