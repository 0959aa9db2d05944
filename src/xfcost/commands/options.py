"""The options that several commands share, written once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

import typer

from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.option_readers import one_of
from xfcost.ledger.options import OPTION_TYPES, Option, spelled_out
from xfcost.ledger.timing_options import TIMING_TYPES
from xfcost.ledger.visible import json_written, one_line, visible
from xfcost.report.columns import check_chosen, choosing, is_chosen
from xfcost.report.messages import say
from xfcost.report.output import Format, ending_of, write_whole

FORMATS: Final = get_args(Format)


Command = TypeVar("Command", bound=Callable[..., None])


def run_options(*names: str, **helps: str) -> Callable[[Command], Command]:
    """`run(…, settings, …, **options)` with the run options `names` (all, where none is named) before `--set`.

    `helps` are texts for a command that takes fewer values of an option than a run does.
    """
    return _options({name: OPTION_TYPES[name] for name in names or OPTION_TYPES}, helps)


def timing_options() -> Callable[[Command], Command]:
    """`run(…, settings, …, **options)` with the options of a timing before `--set`."""
    return _options(TIMING_TYPES, {})


def _options(declared: Mapping[str, Any], helps: Mapping[str, str]) -> Callable[[Command], Command]:
    def described(name: str, option: Option, kind: Any) -> tuple[Any, Any]:
        flag = f"--{name.replace('_', '-')}"
        parameter = typer.Option(flag, metavar=option.metavar, help=helps.get(name, option.help), hidden=option.hidden)
        if kind is bool:
            return option.default, Annotated[bool, parameter]
        default = None if option.default is None else str(option.default)
        return default, Annotated[str if default is not None else str | None, parameter]

    def decorated(command: Command) -> Command:
        spelled_out(command, declared, described, evaluated=True)
        return command

    return decorated


def is_given(context: typer.Context, name: str) -> bool:
    """Was the option written on the command line, and not left to its default?"""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in {"DEFAULT", "DEFAULT_MAP"}


def any_of(words: Sequence[str]) -> str:
    """`table, json or csv`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def presets_from(incomplete: str) -> list[str]:
    """The presets whose names begin so, for the shell's completion; of a path there is none, and the shell's own."""
    from xfcost.spec.load import preset_names

    return [name for name in preset_names() if name.startswith(incomplete)]


def spec_argument(text: str) -> Any:
    """The argument SPEC, whose presets the shell completes."""
    return typer.Argument(help=text, autocompletion=presets_from)


def format_option(formats: Sequence[str]) -> Any:
    """The option --format, whose help lists the `formats` that the command has."""
    return typer.Option("--format", help=f"{any_of(formats)}.")


Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key: --set stages.0.depth=4, or **.heads=4. Repeatable."
    ),
]
Trace = Annotated[
    bool,
    typer.Option(
        "--trace/--no-trace",
        help="Check the closed form on the real torch model (fvcore's trace and torch's dispatcher).",
    ),
]
TraceUnlessOn = Annotated[
    bool | None,
    typer.Option(
        "--trace/--no-trace",
        help="Check the closed form on the real torch model (fvcore, torch's dispatcher); the default without --on.",
        show_default=False,
    ),
]
Device = Annotated[str | None, typer.Option("--device", help="Also run and time the model: cpu, cuda or mps.")]
Predict = Annotated[
    bool,
    typer.Option("--predict", help="Also predict the seconds from the calibration of the device (`xfcost calibrate`)."),
]
Probe = Annotated[
    bool,
    typer.Option("--probe", help="Also run each component on small grids: does it mix tokens as its rows declare?"),
]
FormatOption = Annotated[str | None, format_option(FORMATS)]


def _choose_columns(context: typer.Context, text: str | None) -> str | None:
    if text is not None:
        context.with_resource(choosing(text))
    return text


Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="NAME,…",
        callback=_choose_columns,
        help="Columns of the tables of markdown and latex, by their headings; the one that names the rows stays. "
        "Without it, latex leaves out those for which a page has no room.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Write the report to a file; its ending says the format."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="All figures, searches and notes of the table.")]
# Help of a forward's options, in commands without --mode.
OF_A_FORWARD: Final = {
    "dtype": "float32 (the default), float16, bfloat16 or float64.",
    "attention": "eager (the default; keeps the score matrix) or fused (one kernel).",
}
OR_MODULES: Final = "Torch modules (model.py:NAME, whose code is executed) and config.json as for `analyze`."
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SHAPE",
        help="Of a torch module: 1x3xHxW, or input_ids=BxN:int64. N, H and W, and B stand for --N, --size and --batch; "
        "of several systems 2:1xNx768 is of the second. Repeatable.",
    ),
]
Build = Annotated[
    list[str] | None,
    typer.Option(
        "--build",
        metavar="KEY=VALUE",
        help="Of a class or function that makes one: an argument; N, H and W stand for the lengths. Repeatable.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Of a torch module: exit 1 where an operation is not counted.")]
Mixing = Annotated[
    bool | None,
    typer.Option(
        "--mixing/--no-mixing",
        help="Of a torch module: find how each operation mixes tokens, whatever time it takes, or leave it out. The "
        "model runs with real numbers on the CPU at small sizes. `analyze` of a spec: check the kinds it declares.",
        show_default=False,
    ),
]
MixingTime = Annotated[
    float | None,
    typer.Option(
        "--mixing-time",
        metavar="SECONDS",
        help="How long to look for a torch module's mixing kinds, in `analyze` also to check a spec's; 10 by default, "
        "0: not at all.",
    ),
]
FindMixing = Annotated[
    bool,
    typer.Option(
        "--mixing/--no-mixing",
        help="Of a torch module: find how each operation mixes tokens, by runs with real numbers at two small sizes.",
    ),
]
TokensOf = Annotated[
    list[str] | None,
    typer.Option(
        "--tokens-of",
        metavar="INPUT:AXES",
        help="Of a torch module: the axes of an input along which tokens lie, for mixing kinds: x:1, image:2,3, "
        "cond:none. Repeatable; those of other inputs are found.",
    ),
]
MaxMacs = Annotated[str | None, typer.Option("--max-macs", metavar="COUNT", help="The most MACs of the run: 5G.")]
MaxParams = Annotated[str | None, typer.Option("--max-params", metavar="COUNT", help="The most parameters: 30M.")]
MaxFlops = Annotated[str | None, typer.Option("--max-flops", metavar="COUNT", help="The most FLOPs of the run: 10G.")]
MaxKvCache = Annotated[
    str | None, typer.Option("--max-kv-cache", metavar="BYTES", help="With --mode prefill, decode or generate: 4GiB.")
]
Force = Annotated[bool, typer.Option("-f", "--force", help="Overwrite an existing file.")]

ENDINGS: Final[dict[str, Format]] = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".tex": "latex",
    ".txt": "table",
}


def chosen_format(name: str | None, output: Path | None = None, formats: Sequence[str] = FORMATS) -> Format:
    """The one of `formats` that `--format` names, else the one of the file's ending, else a table.

    Raises:
        UsageError: an unknown format or ending, or `--columns` of one that has none to choose.
    """
    form: Format = "table"
    if name is not None:
        form = one_of("--format", formats)(name)  # type: ignore[assignment]
    elif output is not None:
        form = ENDINGS[ending_of(output, ENDINGS, ", or give --format")]
    if is_chosen() and form not in ("markdown", "latex"):
        raise UsageError(f"--columns: are of --format markdown or latex, and this is {form}")
    return form


def default_target(specs: Sequence[str], what: str) -> Path:
    """`vit-swin-mixing.svg`, in the current folder: the picture of `what` of systems; of `model.py:Net` its name."""
    from xfcost.spec.targets import module_target

    targets = [module_target(spec) for spec in specs]
    names = [
        target.name if target and target.name else Path(spec).stem for spec, target in zip(specs, targets, strict=True)
    ]
    return Path("-".join([*(re.sub(r"[*?\[\]]", "", name).strip("-") for name in names), what]) + ".svg")


def verdict(ledgers: Iterable[Ledger]) -> None:
    """Exit code 1, after the report, where counted and traced, or declared and probed, don't agree.

    A module has no closed form that could disagree; what is left uncounted there is refused by `strict`.
    """
    specs = (ledger for ledger in ledgers if ledger.module is None)
    accounts = (account for ledger in specs for account in (ledger.agreement, ledger.probe))
    if not all(account is None or account.exact for account in accounts):
        raise typer.Exit(1)


def deliver_report(
    render: Callable[[int], Any], text: Callable[[], str], form: Format, output: Path | None, *, force: bool
) -> None:
    """`render(width)` to stdout; as another form, or to a file, `text()`."""
    if form == "table" and output is None:
        from xfcost.report.console import show

        show(render)
    else:
        content = text()
        check_chosen()
        if form == "json" and output is None:
            content = json_written(content, sys.stdout)
        deliver(content, output, force=force)


def deliver_lines(lines: Iterable[str]) -> None:
    """Lines to stdout, each of them one line whatever names are in it."""
    deliver("\n".join(map(one_line, lines)), None, force=False)


def deliver(content: str | bytes, output: Path | None, *, force: bool) -> None:
    """Text to stdout; text or bytes whole to a file (or not at all), with a last line on stderr that says so.

    stdout gets it with what a terminal would obey written out; a file gets it as it is.
    """
    if isinstance(content, str):
        content = content if content.endswith("\n") else f"{content}\n"
    if output is None:
        text = str(content)
        sys.stdout.write(visible(text.replace("\r\n", "\n")))
        sys.stdout.flush()
        return
    write_whole(output, content.encode("utf-8") if isinstance(content, str) else content, force=force)
    say(f"Wrote {output}")
