"""`--from runs.jsonl` of `plot` and `compare`: rows that `xfcost measure` kept, in place of counting and measuring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, get_args

import typer

from xfcost.commands import options as shared
from xfcost.commands.ranges import marked, measured_axis
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.option_readers import one_of
from xfcost.ledger.options import read_option
from xfcost.ledger.quantities import whole_number
from xfcost.report.messages import say

if TYPE_CHECKING:
    from xfcost.counting.measured.choice import Choice
    from xfcost.counting.measured.result import Measured

Command = TypeVar("Command", bound=Callable[..., None])

From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Rows that `xfcost measure --save` kept, in place of a measurement. SPECS are systems of it (default: "
        "all); --device, --threads, --dtype, --batch, --attention, --mode, --N or --size choose rows.",
    ),
]
Machine = Annotated[
    str | None, typer.Option("--machine", metavar="HOST", help="With --from: rows of this machine alone.")
]

METRICS_OF_FILES: Final = "with --from time (the default there), mixing-time, memory or activations"

# Options that choose rows by a word of theirs.
_WORDS: Final = ("machine", "device", "threads", "dtype", "batch", "attention", "mode", "compile", "composed")
_FLAGS: Final = {"compile": "compiled", "composed": "composed"}
_READ: Final = ("dtype", "batch", "attention", "mode")
_ANYWAY: Final = {"specs", "from_", "machine", "N", "size", "output", "force", *_WORDS}
_MOST_THREADS: Final = 2**16


class Given(NamedTuple):
    """What was written on the command line."""

    options: Mapping[str, Any]
    """Every option that was given -> its value."""
    flags: Mapping[str, str]
    """Option -> how it is written."""

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


Delivered = Callable[[Given], None]


def or_from_file(deliver: Delivered) -> Callable[[Command], Command]:
    """`run(specs, …)` with `--from` and `--machine`: with a file, `deliver(given)` answers in place of `run`."""

    def decorated(command: Command) -> Command:
        def run(*positional: Any, **options: Any) -> None:
            context = options.pop("context", None)
            if options.get("from_") is not None:
                deliver(_given(context, options))
                return
            options.pop("from_", None)
            machine = options.pop("machine", None)
            if machine is not None:
                raise UsageError(f"--machine {printable(machine)}: chooses rows of a file; add --from FILE")
            if not positional and not options.get("specs"):
                raise UsageError("expected presets or paths, as in `vit swin`, or --from FILE; `xfcost list` shows all")
            command(*positional, **options)

        run.__doc__, run.__name__, run.__module__ = command.__doc__, command.__name__, command.__module__
        vars(run)["__signature__"] = _with_options(inspect.signature(command, eval_str=True))
        return run  # type: ignore[return-value]

    return decorated


def _with_options(signature: inspect.Signature) -> inspect.Signature:
    """The signature with a context and our options before `output`; SPECS may be left out."""
    own = list(signature.parameters.values())
    specs = own[0].annotation
    optional = Annotated[list[str] | None, get_args(specs)[1]]
    own[0] = own[0].replace(annotation=optional, default=None)
    before = next(number for number, one in enumerate(own) if one.name == "output")
    kind = own[0].kind
    ours = [
        inspect.Parameter("from_", kind, default=None, annotation=From),
        inspect.Parameter("machine", kind, default=None, annotation=Machine),
    ]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return signature.replace(parameters=[*own[:before], *ours, *own[before:], context])


def _given(context: typer.Context, options: Mapping[str, Any]) -> Given:
    """Of all options those that were given."""
    given = {name: value for name, value in options.items() if shared.is_given(context, name)}
    return Given(given, {one.name or "": one.opts[0] for one in context.command.params})


def choice_of(given: Given) -> Choice:
    """The rows that the options choose.

    Raises:
        UsageError: an option can't be.
    """
    from xfcost.counting.measured.choice import Choice

    options = given.options
    fields = {name: _words(name, options[name]) for name in _WORDS if name in options}
    axis, span = None, None
    if options.get("N") is not None or options.get("size") is not None:
        axis, span = measured_axis(options.get("N"), options.get("size"))
    return Choice(tuple(options.get("specs") or ()), fields, axis, span)


def _words(name: str, value: Any) -> tuple[str, ...]:
    """The words of rows that an option takes: `8,16` -> ("8", "16").

    Raises:
        UsageError: no row could have one.
    """
    if name in _FLAGS:
        return (_FLAGS[name] if value else f"not {_FLAGS[name]}",)
    parts = [part.strip() for part in str(value).split(",")]
    if name in _READ:
        parts = [str(read_option(name, part)) for part in parts]
    if name == "threads":
        parts = [str(whole_number("--threads", part, least=1, most=_MOST_THREADS, example="2")) for part in parts]
    return tuple(parts)


def compare_file(given: Given) -> None:
    """`xfcost compare --from FILE [SYSTEM …]`."""
    from xfcost.report.measured_compare import document
    from xfcost.report.output import check_target

    options = given.options
    given.refuse_others(_ANYWAY | {"format_"})
    output, force = options.get("output"), bool(options.get("force"))
    form = shared.chosen_format(options.get("format_"), output)
    check_target(output, force=force)
    found = _found(given)
    if not found.pairs:
        (only,) = [one.name for one in found.series if one.rows]
        raise UsageError(
            f"compare --from {found.file}: there is one series, {only}, and a comparison has two sides; name another "
            "system, or draw it: `xfcost plot --from`"
        )
    report = document(found)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)


def plot_file(given: Given) -> None:
    """`xfcost plot --from FILE [SYSTEM …]`."""
    from xfcost.counting.measured.readings import READINGS
    from xfcost.report.figure import FIGURES
    from xfcost.report.measured_compare import points_csv
    from xfcost.report.output import check_target, ending_of
    from xfcost.report.plot import chart_bytes
    from xfcost.report.scaling import measured_chart

    options = given.options
    given.refuse_others(_ANYWAY | {"metric", "mark"})
    metric = one_of("--metric", READINGS)(options.get("metric", "time"))
    target = options.get("output") or Path(f"{_stem(options['from_'])}-{metric}.svg")
    force = bool(options.get("force"))
    form = ending_of(target, (*FIGURES, ".csv"))
    check_target(target, force=force)
    found = _found(given)
    chart = measured_chart(found, metric, _mark(options.get("mark"), found))
    shared.deliver_lines(chart.summary)
    shared.deliver(points_csv(found) if form == ".csv" else chart_bytes(chart, form), target, force=force)


def _found(given: Given) -> Measured:
    from xfcost.api.measured import measured_file

    return measured_file(given.options["from_"], choice_of(given), say)


def _stem(path: Path) -> str:
    return re.sub(r"[^\w.-]", "", path.stem) or "runs"


def _mark(mark: str | None, found: Measured) -> int | None:
    """The dotted line, as in other plots."""
    from xfcost.counting.measured.series import at

    xs = [at(row, one.axis) for one in found.series for row in one.rows]
    return marked(mark, found.axis, (min(xs), max(xs)))
