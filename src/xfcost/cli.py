"""The typer app. Commands are looked up by name and imported when they are invoked; errors are caught here, once."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from xfcost.commands.words import QUIET, in_binary, meant, meant_option, near_models, translated
from xfcost.ledger.errors import NotFetchedError, XfcostError, did_you_mean, near_names, printable
from xfcost.ledger.process_end import refuse_sudden_ends
from xfcost.ledger.visible import one_line, written
from xfcost.report.messages import (
    be_quiet,
    discard,
    leave_stdout,
    open_stderr,
    own_stdout,
    refuse,
    say,
    settle,
    substitute,
    warn_once,
)

# In the order of the help: name -> module in `questions/`.
COMMANDS: Final = {
    "analyze": "analyze.command",
    "compare": "compare.command",
    "find": "find.command",
    "plot": "plot.command",
    "report": "report.command",
    "measure": "measure.command",
    "diagram": "diagram.command",
    "glance": "glance.command",
    "reach": "reach.command",
    "stream": "stream.command",
    "layers": "tables.layers",
    "survey": "tables.survey",
    "devices": "devices.command",
    "diff": "diff.command",
    "check": "check.command",
    "roofline": "roofline.command",
    "calibrate": "calibrate.command",
    "list": "models.list_",
    "show": "models.show",
    "new": "models.new",
    "import": "models.import_",
    "schema": "models.schema",
    "doctor": "doctor.command",
}


# What `xfcost` without a command prints, and the README's table: a question -> the commands that answer it.
FIRST: Final = {
    "Which operations of a model cost most?": ("analyze vit",),
    "Which of two models costs less on an image of 224×224 pixels?": ("compare vit swin --size 224",),
    "How does their cost grow?": ("plot vit swin --size 112:896 -o growth.svg",),
}
QUESTIONS: Final = {
    "Does a 70B model fit on 8 H100 with a batch of 8 and 128k tokens, and how fast can it decode?": (
        "analyze llama-3.3-70b --mode decode --on h100-sxmx8 --N 128k --batch 8",
    ),
    "Which devices serve a 70B model at 30 tokens/s per user, and how many users at once?": (
        "analyze llama-3.3-70b --mode decode --N 32k --on h100-sxmx8,h200-sxmx8,l40sx16 --tokens-per-user 30",
    ),
    "Does a smaller model that drafts tokens pay off?": (
        "analyze llama-3.3-70b --mode decode --N 8k --on h100-sxmx4 --draft llama-3.2-1b --acceptance 70%",
    ),
    "Can I fine-tune an 8B model with QLoRA on one RTX 4090?": (
        "analyze llama3-8b --mode train --N 2k --lora 16 --weights-dtype nf4 --on rtx4090",
    ),
    "How many days does a 1.3B model take to train on 300B tokens with 8 A100?": (
        "analyze gpt3-xl --mode train --tokens 300B --on a100-sxm-80x8",
    ),
    "Which models need less than 25 GMACs for an image of 512×512 pixels?": (
        "find --size 512 --max-macs 25G --sort params",
    ),
    "Does window attention cost less than full attention at my N?": (
        "compare common-full common-sliding --N 4k --on h100-sxm",
    ),
    "Did this pull request make it slower?": (
        "diff main:specs/vit/vit-s8.yaml specs/vit/vit-s8.yaml",
        "check specs/vit/vit-s8.yaml --max-macs 25G",
    ),
    "How do I share the result as a page?": ("report vit swin --size 224 -o report.html",),
}


class _Words:
    """Coerces the values of a parameter as typer does, but words and paths without pydantic.

    To import that takes a third of a short command. Releases of typer without it don't ask.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter: None, a word, or the words of one that takes several."""
        kind = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs != 1 else None
        if kind in (str, Path):
            return kind(value)
        if kind == list[str]:
            return [*value]
        vars(param)["_runtime_param"] = None  # typer makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class _ReadsWords:
    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` among them."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            vars(one)["_runtime_param"] = _Words()
        return found


class _Command(_ReadsWords, TyperCommand):
    def __init__(self, *given: Any, **more: Any) -> None:
        """Values without a name of their own are called as click does: releases of typer differ in this."""
        super().__init__(*given, **more)
        for one in self.params:
            if one.metavar is None and one.param_type_name == "argument":
                name = str(one.name).upper()
                one.metavar = (name if one.required else f"[{name}]") + ("..." if one.nargs != 1 else "")
            elif one.metavar is None and not getattr(one, "is_flag", False):
                one.metavar = "TEXT"

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] SPEC`."""
        return ["[OPTIONS]", *(str(one.metavar) for one in self.params if one.param_type_name == "argument")]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments read, other tools' words too; where required ones are missing, all of them are named.

        Raises:
            UsageError: an argument or an option is missing.
        """
        given = list(translated(args, _flags(self)))
        if any(word in QUIET for word in given):
            be_quiet()
            given = [word for word in given if word not in QUIET]
        for word, after in pairwise(given):
            if word == "--N" and (binary := in_binary(after)) is not None:
                say(f"{word} {after} is {binary.decimal:,} tokens; {binary.number:,} are {word} {binary.text}")
            if word in ctx.help_option_names and after in (*TOPICS, "all"):
                ctx.meta["topic"] = after
        try:
            return super().parse_args(ctx, [*given])
        except Exception as error:
            if wrong := getattr(error, "option_name", ""):
                given_to_it = next((after for word, after in pairwise([*given, ""]) if word == wrong), "")
                near = near_names(wrong, _flags(self), similar=_SIMILAR)
                budgets = _flags(command("check")) if wrong.startswith("--max-") and ctx.info_name != "check" else set()
                models = [*takewhile(lambda word: not word.startswith("-"), given)]
                mend = meant_option(wrong, given_to_it, models, budgets) or " or ".join(near)
                vars(error)["possibilities"] = None
                vars(error)["message"] += f"; did you mean {mend}?" if mend else ""
            if type(error).__name__ != "MissingParameter":
                raise
            first = vars(error)["param"]
        from xfcost.commands.options import missing

        values = self.make_parser(ctx).parse_args(args=given)[0]
        absent = [
            one
            for one in self.params
            if one.required
            and ((value := values.get(str(one.name))) is None or one is first or one.value_is_missing(value))
        ]
        raise missing(ctx, absent)

    def get_help(self, ctx: Any) -> str:
        """The help as stdout can write it; typer writes UTF-8 to an ASCII one."""
        return written(super().get_help(ctx), sys.stdout)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the options by group: what only this command has, the groups, `--help` last.

        Of a long help the groups of `TOPICS` are left to `--help TOPIC`.
        """
        from xfcost.api.options import GROUPS

        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], **{name: [] for name in GROUPS}}
        for one in self.get_params(ctx):
            if (record := one.get_help_record(ctx)) is None:
                continue
            own = "Options"
            if one.param_type_name == "argument":
                own, record = "Arguments", (str(one.metavar), record[1])
            panels.setdefault(getattr(one, "rich_help_panel", None) or own, []).append(record)
        *_, help_record = panels["Options"]
        panels["Options"].remove(help_record)
        filled = {name: records for name, records in panels.items() if records}
        topics = {topic: name for topic, name in TOPICS.items() if name in filled}
        asked = ctx.meta.get("topic")
        if asked in topics:
            filled = {topics[asked]: filled[topics[asked]]}
        elif asked is None and sum(map(len, filled.values())) > _MOST_OPTIONS:
            filled = {name: records for name, records in filled.items() if name not in topics.values()}
        else:
            topics = {}
        last = next(reversed(filled), "Options")
        filled.setdefault("Options" if last == "Arguments" else last, []).append(help_record)
        for name, records in filled.items():
            with formatter.section(name):
                formatter.write_dl(records, col_max=_MOST_OPTION)
        if topics and asked is None:
            with formatter.section("More options"):
                shown = [(f"--help {topic}", _first_flags(panels[name])) for topic, name in topics.items()]
                formatter.write_dl([*shown, ("--help all", "every option")])


def _flags(one: TyperCommand) -> set[str]:
    """The options of a command as they are given."""
    return {flag for param in one.params for flag in (*param.opts, *param.secondary_opts)}


def _first_flags(records: list[tuple[str, str]]) -> str:
    """`--on, --mfu, --mbu, --weights-dtype, …`."""
    flags = [record[0].split()[0] for record in records]
    return ", ".join([*flags[:_SHOWN_FLAGS], "…"])


class LazyGroup(_ReadsWords, TyperGroup):
    """A group that imports a command's module when the command is run."""

    def make_context(self, *given: Any, **more: Any) -> Any:
        """The group's context, which the options before the command make."""
        with _errors_before_typer():
            return super().make_context(*given, **more)

    def invoke(self, ctx: Any) -> Any:
        """The command, its own options read first."""
        with _errors_before_typer():
            return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The options before the command; `help` and `version` alone are options, `help analyze` that of a command."""
        if args[:1] == ["help"] and args[1:2] and args[1] in COMMANDS:
            args = [args[1], "--help", *args[2:]]
        elif args in (["help"], ["version"]):
            args = [f"--{args[0]}"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; an unknown one is refused with the nearest."""
        if (words := meant(args, lambda name: _flags(command(name)) if name in COMMANDS else ())) is not None:
            if not {*QUIET} & {*words}:
                say(f"running `{printable(shlex.join(['xfcost', *words]), _LONGEST)}`")
            return super().resolve_command(ctx, words)
        if args[0] not in COMMANDS and (near := near_names(args[0], sorted(COMMANDS)) or near_models(args[0])):
            ctx.fail(f"No such command {args[0]!r}; {did_you_mean(near)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """The written list."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, its module imported now."""
        return command(cmd_name) if cmd_name in COMMANDS else None


# The groups of options that a long help leaves out: `analyze --help serving` shows them.
TOPICS: Final = {
    "serving": "Devices and plan",
    "training": "Training, with --mode train",
    "timing": "Timing, with --device",
    "modules": "Torch modules",
}
# A help with more options is long.
_MOST_OPTIONS: Final = 40
_SHOWN_FLAGS: Final = 4
# An option is proposed for a wrong one that is as similar.
_SIMILAR: Final = 0.8
# Columns of an option in the help, and of the whole help.
_MOST_OPTION: Final = 26
_WIDEST: Final = 140

# sysexits.h: EX_SOFTWARE. Never 1: the accounts disagree.
INTERNAL_ERROR: Final = 70
# 128 + SIGPIPE, as in shells: the reader of a pipe closed it (`xfcost list | head -1`).
CLOSED_PIPE: Final = 141


@contextmanager
def _errors_before_typer() -> Iterator[None]:
    """A closed pipe ends quietly (typer ends it with 1); long words of a typer message are shortened."""
    try:
        yield
    except BrokenPipeError:
        discard(sys.stdout.fileno())
        sys.exit(CLOSED_PIPE)
    except Exception as error:
        message = getattr(error, "message", None)
        if hasattr(error, "format_message") and isinstance(message, str):
            said = re.sub(r"\S{61,}", lambda word: printable(word[0]), one_line(message))
            vars(error)["message"] = written(said, sys.stderr)
        raise


@cache
def command(name: str) -> TyperCommand:
    """The command `name`: the function `run` of its module, whose docstring is the help, with an example at its end."""
    module = import_module(f"xfcost.questions.{COMMANDS[name]}")
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    text, _, example = inspect.cleandoc(module.run.__doc__ or "").partition("\n\nExample: ")
    single.command(name, cls=_Command, help=text, epilog=f"Example: {example}")(module.run)
    return typer.main.get_command(single)  # type: ignore[return-value]


app = typer.Typer(
    cls=LazyGroup,
    name="xfcost",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST},
)


def _version(value: bool) -> None:
    if value:
        from xfcost import __version__

        typer.echo(f"xfcost {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    allow_outside: bool = typer.Option(
        False, "--allow-outside", help="Allow specs to extend files outside their own folder; goes before the command."
    ),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print no progress; every command takes it."),
) -> None:
    """Count what transformers and other models cost: operations, parameters, memory and time.

    SPEC is a preset (`xfcost list` shows them) or the path of a YAML file.
    """
    if quiet:
        be_quiet()
    if allow_outside:
        from xfcost.spec.reader import allow_outside as allowed

        ctx.with_resource(allowed())
    if ctx.invoked_subcommand is None:
        asked = [*FIRST.items(), *QUESTIONS.items()]
        lines = [f"{question}\n" + "\n".join(f"  xfcost {one}" for one in commands) for question, commands in asked]
        lines.insert(len(FIRST), "")
        typer.echo("\n".join([*lines, "", "All commands: xfcost --help; what is installed: xfcost doctor"]))


def main() -> None:
    """Run the app: a user's error is one message and exit code 2, an internal error one line and exit code 70."""
    be_quiet(False)
    open_stderr()
    if sys.stdout is None:
        _refuse("stdout is closed")
    stdout = own_stdout()
    substitute()
    warn_once()
    refuse_sudden_ends()
    try:
        app()
    except NotFetchedError as error:
        words = [word for word in sys.argv[1:] if word != "--no-fetch"]
        _refuse(f"{error}: {printable(shlex.join(['xfcost', *words, '--fetch']), _LONGEST)}")
    except XfcostError as error:
        text, option = str(error), getattr(error, "option", "")
        if option and sys.argv[1] in _OF_ONE_SPEC:
            command = shlex.join(["xfcost", *sys.argv[1:]])
            text = text.replace(option, f"`{printable(f'{command} {option}', _LONGEST)}`")
        _refuse("\n  ".join(filter(None, (text, getattr(error, "mend", "")))), error.exit_code)
    except MemoryError:
        _refuse("out of memory; take a smaller spec or --N, or raise the limit of this process (ulimit -v, a cgroup's)")
    except ModuleNotFoundError as error:
        discard(stdout.fileno())
        _refuse(_not_installed(error))
    except OSError as error:
        discard(stdout.fileno())
        _refuse(_refused_by_system(error))
    except Exception as error:  # noqa: BLE001 - an internal error must not read as a result
        discard(stdout.fileno())
        _refuse(_internal(error), INTERNAL_ERROR)
    finally:
        leave_stdout()
        settle()


def _not_installed(error: ModuleNotFoundError) -> str:
    """The library that is missing, and how to get it; an own module that is missing is an internal error."""
    library = (error.name or "xfcost").partition(".")[0]
    if library == "xfcost":
        return _internal(error)
    alone = "; --no-trace counts a spec without it" if library in {"torch", "fvcore"} else ""
    return f"{library} is not installed: pip install {library}{alone} (`xfcost doctor` lists what is missing)"


def _refused_by_system(error: OSError) -> str:
    """A full or broken stdout; or a file, which has a name, or an error of its own kind, as FileNotFoundError."""
    if type(error) in (OSError, BlockingIOError) and error.filename is None:
        return f"stdout can't be written: {error.strerror or error}"
    name = f" ({printable(str(error.filename), 200)})" if error.filename is not None else ""
    return f"the operating system refused: {error.strerror or error}{name}"


def _internal(error: Exception) -> str:
    """One line that asks for a report; `XFCOST_TRACEBACK=1` raises the error instead."""
    if os.environ.get("XFCOST_TRACEBACK"):
        raise error
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f" at {os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where else ""
    what = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
    return (
        f"internal error ({what}{place}); please report this line, the command and its spec "
        "(XFCOST_TRACEBACK=1 prints the traceback)"
    )


# Commands with --set, of one spec alone.
_OF_ONE_SPEC: Final = ("analyze", "diagram", "glance", "reach")
# Letters of an unexpected error that are printed.
_LONGEST: Final = 300


def _refuse(message: str, code: int = XfcostError.exit_code) -> NoReturn:
    for line in message.split("\n"):  # an indented one continues the line before it
        refuse(line if line.startswith("  ") else f"error: {line}")
    sys.exit(code)
