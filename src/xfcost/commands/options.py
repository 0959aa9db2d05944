"""The options that several commands share, written once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from xfcost.ledger.errors import UsageError, printable, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.visible import visible
from xfcost.report.messages import say
from xfcost.report.output import Format, write_whole

FORMATS: Final = get_args(Format)


def any_of(words: Sequence[str]) -> str:
    """`table, json or csv`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


Tokens = Annotated[
    str | None,
    typer.Option(
        "--N",
        metavar="INT",
        help="Tokens of the first stage; image specs take the grid nearest to square. 128k is 128,000, 128Ki 131,072.",
    ),
]
Size = Annotated[
    str | None,
    typer.Option("--size", metavar="PIXELS", help="Image size in place of N: 384, or 224x320 (height x width)."),
]
Batch = Annotated[str, typer.Option("--batch", metavar="INT", help="Samples.")]
Dtype = Annotated[str, typer.Option("--dtype", help="float32, float16, bfloat16 or float64.")]
Attention = Annotated[str, typer.Option("--attention", help="eager (keeps the score matrix) or fused (one kernel).")]
MemoryLevel = Annotated[
    str | None,
    typer.Option(
        "--memory-level",
        metavar="BYTES",
        help="On-chip memory (192KiB): main-memory traffic of attention, plain and tiled for it (FlashAttention).",
    ),
]
Mode = Annotated[
    str,
    typer.Option(
        "--mode", help="forward, prefill, decode (one more token, its past cached), generate or train (a step)."
    ),
]
NewTokens = Annotated[
    str | None,
    typer.Option("--new-tokens", metavar="INT", help="Tokens that --mode generate writes after a prompt of N."),
]
Logits = Annotated[
    str | None,
    typer.Option(
        "--logits", metavar="last|all", help="With --mode prefill or generate: of which positions (default: the last)."
    ),
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        "--optimizer", metavar="NAME", help="With --mode train: adamw (the default), sgd, momentum, adafactor or lion."
    ),
]
TrainTokens = Annotated[
    str | None,
    typer.Option("--tokens", metavar="NUMBER", help="With --mode train: tokens of the whole run (300e9, 300B)."),
]
Peak = Annotated[
    str | None,
    typer.Option(
        "--peak", metavar="FLOP/S", help="With --tokens and --mfu: the peak of one device (312T): the run in days."
    ),
]
Mfu = Annotated[
    str | None,
    typer.Option("--mfu", metavar="SHARE", help="Model FLOPs utilisation: the share of --peak that it gets (40%)."),
]
Sustained = Annotated[
    str | None,
    typer.Option("--sustained", metavar="FLOP/S", help="What one device sustains, in place of --peak and --mfu."),
]
Rate = Annotated[
    str | None, typer.Option("--rate", hidden=True, help="Refused: it did not say whether it is sustained or a peak.")
]
Devices = Annotated[
    str | None, typer.Option("--devices", metavar="INT", help="With --peak or --sustained: devices that share the run.")
]
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
Device = Annotated[str | None, typer.Option("--device", help="Also run and time the model: cpu, cuda or mps.")]
FormatOption = Annotated[str | None, typer.Option("--format", help=f"{any_of(FORMATS)}.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Write the report to a file; its ending says the format."),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="All figures, searches and notes of the table.")]
Force = Annotated[bool, typer.Option("-f", "--force", help="Overwrite an existing file.")]

ENDINGS: Final[dict[str, Format]] = {
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".tex": "latex",
    ".txt": "table",
}


def chosen_format(name: str | None, output: Path | None) -> Format:
    """The format that `--format` names, else the one of the file's ending, else a table.

    Raises:
        UsageError: an unknown format or ending.
    """
    if name is not None:
        if name not in FORMATS:
            raise UsageError(f"--format {printable(name)}: expected one of {', '.join(FORMATS)}")
        return name  # type: ignore[return-value]
    if output is None:
        return "table"
    ending = output.suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(
            f"-o {shown(output, 200)}: the ending says the format; expected one of {', '.join(ENDINGS)}, "
            "or give --format"
        )
    return ENDINGS[ending]


def verdict(ledgers: Iterable[Ledger]) -> None:
    """Exit code 1, after the report, where counted and traced don't agree."""
    if any(ledger.agreement is not None and not ledger.agreement.exact for ledger in ledgers):
        raise typer.Exit(1)


def progress(text: str) -> None:
    """A line of talk, on stderr."""
    say(text)


def deliver(text: str, output: Path | None, *, force: bool) -> None:
    """`text` to stdout, or whole to a file (or not at all), with a last line on stderr that says so.

    A terminal gets it with what it would obey written out; a file and a pipe get it as it is.
    """
    if output is None:
        shown = visible(text.replace("\r\n", "\n")) if sys.stdout.isatty() else text
        sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")
        sys.stdout.flush()
        return
    write_whole(output, text.encode("utf-8") if text.endswith("\n") else f"{text}\n".encode(), force=force)
    progress(f"Wrote {output}")
