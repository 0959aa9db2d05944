"""The options that several commands share, written once, with their readers."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, cast, get_args

import typer

from xfcost.api.options import EVERY, GROUP_OF, TYPES, flag_of
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.option_readers import one_of
from xfcost.ledger.visible import json_written, one_line, visible
from xfcost.report.messages import say
from xfcost.report.output import (
    ENDINGS,
    Format,
    check_chosen,
    check_target,
    choosing,
    ending_of,
    is_chosen,
    write_whole,
)

if TYPE_CHECKING:
    from xfcost.report.document import Document


FORMATS: Final = get_args(Format)


Command = TypeVar("Command", bound=Callable[..., None])


def options(*declared: Any, **helps: str | tuple[str, Sequence[str]]) -> Callable[[Command], Command]:
    """`run(…, **given)` with the options `declared`, names of them or groups, each in the panel of its group.

    `helps` are texts for a command that means an option otherwise; with its words, where it takes fewer.
    """
    names = [name for one in declared for name in ([one] if isinstance(one, str) else one.__annotations__)]

    def decorated(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [_parameter(name, helps.get(name)) for name in names if name in _OUTPUT or EVERY[name].flag != ""]

        @wraps(command)
        def run(*words: Any, **given: Any) -> None:
            columns = given.get("columns")
            with nullcontext() if columns is None else choosing(columns):
                command(*words, **given)

        vars(run)["__signature__"] = signature.replace(parameters=[*own, *named])
        return cast("Command", run)

    return decorated


def _parameter(name: str, own: str | tuple[str, Sequence[str]] | None) -> inspect.Parameter:
    """The option as typer reads it."""
    if name in _OUTPUT:
        usual, annotation = _OUTPUT[name]
        if isinstance(own, tuple):  # of --format
            annotation = Annotated[str | None, choice_option("--format", own[1], own[0])]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=usual, annotation=annotation)
    option, kind = EVERY[name], TYPES[name].__origin__
    text, words = own if isinstance(own, tuple) else (own, option.words)
    completed = devices_from if name == "on" else words_from(words) if words else None
    parameter = typer.Option(
        flag_of(name), metavar=option.metavar or one_of_text(words), help=text or option.help,
        rich_help_panel=GROUP_OF[name], autocompletion=completed, show_default=kind != bool | None,
    )  # fmt: skip
    default: Any = False if kind is bool else None
    if isinstance(option.default, tuple):
        kind = list[str] | None
    elif kind not in (bool, bool | None, float | None):
        default = None if option.default is None else str(option.default)
        kind = str | None if default is None else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, parameter]
    )


def is_given(context: typer.Context, name: str) -> bool:
    """Was the option written on the command line, and not left to its default?"""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in {"DEFAULT", "DEFAULT_MAP"}


def presets_from(incomplete: str) -> list[str]:
    """The presets and models whose names begin so, for the shell's completion; of a path none, and the shell's own."""
    from xfcost.spec.load import preset_names
    from xfcost.spec.models import models

    return [name for name in (*preset_names(), *models()) if name.startswith(incomplete)]


def devices_from(incomplete: str) -> list[str]:
    """The devices of `--on` whose names begin so, the last of several."""
    from xfcost.counting.devices import device_names

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in device_names() if name.startswith(last)]


def words_from(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Those of `words` that begin so."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def spec_argument(text: str) -> Any:
    """The argument SPEC, whose presets the shell completes."""
    return typer.Argument(help=text, autocompletion=presets_from)


# What a SPEC can be: an example -> what it is, and the commands that don't take it.
_SPECS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "vit": ("a preset (`xfcost list`)", ()),
    "qwen3-32b": ("a published model (`xfcost list --models`)", ()),
    "mine.yaml": ("a spec of your own (`xfcost new mine.yaml --like vit` writes one to start from)", ()),
    "model.py:Net": ("a torch module, whose code is executed", ("show", "stream")),
    "config.json": ("a configuration of transformers", ("show",)),
    "org/name": ("with --fetch the configuration of a model on the Hugging Face Hub", ("measure",)),
    "net.pt2": ("a program of torch.export", ("reach", "show", "stream")),
    "net.onnx": ("an ONNX graph", ("diagram", "glance", "measure", "reach", "show", "stream")),
}
_TAKES_SPECS: Final = ("spec", "specs", "before", "after")


def missing(context: typer.Context, absent: Sequence[Any]) -> UsageError:
    """The error of a command that lacks `absent`: each with its help, what a SPEC can be, an example."""
    command = context.command
    specs = any(one.name in _TAKES_SPECS for one in absent)
    named = [(one.opts[0] if one.param_type_name == "option" else one.metavar.strip("[]."), one.help) for one in absent]
    lines = [(example, what) for example, (what, others) in _SPECS.items() if specs and command.name not in others]
    width = max(len(name) for name, _ in lines or named)
    either = " and " if all(one.required for one in absent) else " or "
    return UsageError(
        "\n  ".join(
            [
                f"{command.name}: expected {either.join(name for name, _ in named)}",
                *(f"{name:{width}}  {what}" for name, what in lines or named),
                f"{command.epilog}. Options: xfcost {command.name} --help",
            ]
        )
    )


def one_of_text(words: Sequence[str]) -> str | None:
    """`[eager|fused]`, which stands for a value in the help; None without words."""
    return f"[{'|'.join(words)}]" if words else None


def option(flag: str, value: str | None, text: str, panel: str | None = None, **more: Any) -> Any:
    """An option of one command, whose help calls what it takes `value`; of None a flag."""
    return typer.Option(flag, metavar=value, help=text, rich_help_panel=panel, **more)


def choice_option(flag: str, words: Sequence[str], what: str) -> Any:
    """An option of the output that takes one of the `words`."""
    return option(flag, one_of_text(words), what, "Output", autocompletion=words_from(words))


def output_option(text: str) -> Any:
    """The option -o."""
    return typer.Option("-o", "--output", metavar="PATH", help=text, rich_help_panel="Output")


# The options of a report: name -> default and annotation.
_OUTPUT: Final[dict[str, tuple[Any, Any]]] = {
    "format_": (
        None,
        Annotated[str | None, choice_option("--format", FORMATS, "How the report is written (default: table).")],
    ),
    "columns": (
        None,
        Annotated[
            str | None,
            option(
                "--columns",
                "NAME,…",
                "Columns of markdown and latex, by heading.",
                "Output",
            ),
        ],
    ),
    "verbose": (
        False,
        Annotated[bool, option("--verbose", None, "Show all figures, searches and notes.", "Output")],
    ),
    "output": (None, Annotated[Path | None, output_option("Write to this file; its ending sets the format.")]),
    "picture": (
        None,
        Annotated[
            Path | None,
            output_option("Write to this file: a picture (svg, png, pdf) or the report (csv, json, md, tex, txt)."),
        ],
    ),
    "force": (
        False,
        Annotated[bool, typer.Option("-f", "--force", help="Overwrite an existing file.", rich_help_panel="Output")],
    ),
}
FindMixing = Annotated[
    bool,
    option(
        "--mixing/--no-mixing",
        None,
        "Find how each operation mixes tokens, by running the module at two small sizes.",
        "Torch modules",
    ),
]
REPORT: Final = ("format_", "columns", "output", "force")
DRAWING: Final = ("format_", "columns", "picture", "force")
# Help of a forward's options, in commands without --mode.
OF_A_FORWARD: Final = {
    "dtype": "float32 (the default), float16, bfloat16 or float64.",
    "attention": "eager (the default; stores the score matrix) or fused (one kernel).",
}
OR_MODULES: Final = "Torch modules (model.py:NAME, whose code is executed) and config.json work as in `analyze`."
SYSTEMS: Final = spec_argument(f"Presets or paths; `common-*` matches several presets. {OR_MODULES}")
Systems = Annotated[list[str], SYSTEMS]


def chosen_format(name: str | None, output: Path | None = None, formats: Sequence[str] = FORMATS) -> Format:
    """The one of `formats` that `--format` names, else the one of the file's ending, else a table.

    Raises:
        UsageError: an unknown format or ending, or `--columns` of one that has none to choose.
    """
    form: Format = "table"
    if name is not None:
        form = one_of(formats)("--format", name)  # type: ignore[assignment]
    elif output is not None:
        form = ENDINGS[ending_of(output, ENDINGS, ", or give --format")]
    if is_chosen() and form not in ("markdown", "latex"):
        raise UsageError(f"--columns: only for --format markdown and latex, not {form}")
    return form


def default_target(specs: Sequence[str], what: str) -> Path:
    """`vit-swin-mixing.svg`, in the current folder: the picture of `what` of systems; of `model.py:Net` its name."""
    from xfcost.spec.targets import module_target

    targets = [module_target(spec) for spec in specs]
    names = [
        target.name if target and target.name else Path(spec).stem for spec, target in zip(specs, targets, strict=True)
    ]
    return Path("-".join([*(re.sub(r"[*?\[\]]", "", name).strip("-") for name in names), what]) + ".svg")


def counted_specs(context: typer.Context, specs: list[str] | None, machine: str | None) -> list[str]:
    """The systems of a command that has `--from` too, and was given none.

    Raises:
        UsageError: there are none, or rows of a file are chosen.
    """
    if machine is not None:
        raise UsageError(f"--machine {printable(machine)}: chooses rows of a file; add --from FILE")
    if not specs:
        raise missing(context, [one for one in context.command.params if one.name in ("specs", "from_")])
    return specs


def verdict(ledgers: Iterable[Ledger]) -> None:
    """Exit code 1, after the report, where counted and traced, or declared and probed, don't agree.

    A module has no closed form that could disagree; what is left uncounted there is refused by `strict`.
    """
    if not all(ledger.agrees for ledger in ledgers):
        raise typer.Exit(1)


class Target(NamedTuple):
    """Where a report goes, and as what."""

    form: Format
    output: Path | None
    force: bool
    picture: str = ""
    """The ending of a picture, which is drawn in addition to the report; the report then goes to the terminal."""

    def document(self, made: Document, draw: Callable[[str], bytes] | None = None) -> None:
        """A report, and the picture that `draw` makes."""
        self.report(made.terminal, lambda: made.text(self.form), draw)

    def report(
        self, render: Callable[[int], Any], text: Callable[[], str], draw: Callable[[str], bytes] | None = None
    ) -> None:
        """`render(width)` to stdout; as another form, or to a file, `text()`; and the picture that `draw` makes."""
        if self.form == "table" and (self.output is None or self.picture):
            from xfcost.report.console import show

            show(render)
        else:
            content, output = text(), None if self.picture else self.output
            check_chosen()
            if self.form == "json" and output is None:
                content = json_written(content, sys.stdout)
            deliver(content, output, force=self.force)
        if self.picture and draw is not None:
            deliver(draw(self.picture), self.output, force=self.force)


def target_of(given: dict[str, Any], formats: Sequence[str] = FORMATS) -> Target:
    """Where the report goes, by the options REPORT or DRAWING, which are taken out of `given`.

    Raises:
        UsageError: an unknown format or ending, or a file that is there already.
    """
    name, force = given.pop("format_"), bool(given.pop("force", False))
    given.pop("columns", None)
    output, picture = given.pop("output", None), ""
    if (drawn := given.pop("picture", None)) is not None:
        from xfcost.report.figure import FIGURES

        output, endings = drawn, dict.fromkeys((*FIGURES, *ENDINGS))
        ending = drawn.suffix.lower() if name else ending_of(drawn, endings, ", or give --format")
        picture = ending if ending in FIGURES else ""
    form = chosen_format(name, None if picture else output, formats)
    check_target(output, force=force)
    return Target(form, output, force, picture)


def deliver_lines(lines: Iterable[str]) -> None:
    """Lines to stdout, each of them one line of a report whatever names are in it, folded at the terminal's width."""
    from xfcost.report.console import show
    from xfcost.report.document import drawn, line

    parts = [line(one_line(one)) for one in lines]
    if parts:
        show(lambda width: drawn(parts, width))


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
