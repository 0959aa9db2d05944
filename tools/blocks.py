"""What the cog blocks of README.md and docs/ print: commands with their real output, and generated tables.

`make docs` writes the blocks, `make lint` checks that they are what the commands print today.
"""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cog


def run(arguments: str, *, first: int | None = None, last: int | None = None) -> None:
    """`$ xfcost ARGUMENTS` and what it prints, or its first and last lines."""
    lines = output(arguments).splitlines()
    if first is not None and len(lines) > first + (last or 0):
        lines = [*lines[:first], "…", *(lines[-last:] if last else [])]
    cog.outl("\n".join(["", "```text", f"$ xfcost {arguments}", *(line.rstrip() for line in lines), "```", ""]))


def lines_of(arguments: str, word: str, count: int) -> None:
    """`$ xfcost ARGUMENTS` and, of what it prints, the first line with `word` in it and so many in all from there."""
    lines = output(arguments).splitlines()
    first = next(number for number, line in enumerate(lines) if word in line)
    shown = [line.rstrip() for line in lines[first : first + count]]
    cog.outl("\n".join(["", "```text", f"$ xfcost {arguments}", "…", *shown, "…", "```", ""]))


def output(arguments: str) -> str:
    """What a command prints on stdout, 100 columns wide, without colour."""
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "TERM": "dumb"}
    command = [sys.executable, "-m", "xfcost", *shlex.split(arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=True)
    return done.stdout


def help_pages() -> None:
    """Every command's `--help`."""
    from xfcost.cli import COMMANDS

    cog.outl("\n```text\n" + output("--help").rstrip() + "\n```\n")
    for name in COMMANDS:
        cog.outl(f"## `xfcost {name}`\n\n```text\n{output(f'{name} --help').rstrip()}\n```\n")


def conventions() -> None:
    """The table of FLOPs per element."""
    from tabulate import tabulate

    from xfcost.formulas.conventions import FLOPS_PER_ELEMENT

    rows = [[f"`{name}`", flops] for name, flops in FLOPS_PER_ELEMENT.items()]
    cog.outl("\n" + tabulate(rows, headers=["work", "FLOPs per element"], tablefmt="github") + "\n")


def gallery() -> None:
    """Every preset: tokens, our exact counts beside the reference's, figures in print, the difference, who says so."""
    from tabulate import tabulate

    from xfcost.spec.load import preset_files

    families: dict[str, list[list[str]]] = {}
    references = _references()
    for preset, file in preset_files().items():
        families.setdefault(file.parent.name, []).extend(_gallery_lines(preset, references.get(preset)))
    headers = ["preset", "system", "tokens", "", "ours", "reference", "in print", "difference", "source"]
    for family, lines in families.items():
        cog.outl(
            f"\n## {family}\n\n" + tabulate(lines, headers=headers, tablefmt="github", disable_numparse=True) + "\n"
        )


def _references() -> dict[str, dict[str, str]]:
    """The exact counts that tests hold presets to: preset -> params, macs, source."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted((Path(__file__).parents[1] / "tests" / "data").glob("exact*.csv")):
        with file.open(encoding="utf-8") as stream:
            found |= {row["preset"]: row for row in csv.DictReader(stream)}
    return found


def _gallery_lines(preset: str, reference: dict[str, str] | None) -> Iterator[list[str]]:
    """A line for parameters and one for MACs, and more where more than one figure of either is in print."""
    from xfcost.counting.forward import count
    from xfcost.ledger import units
    from xfcost.spec.load import load
    from xfcost.spec.walk import Run, place

    ledger = count(place(load(preset), Run()))
    start = [f"`{preset}`", ledger.metadata.name, ledger.metadata.tokens]
    for quantity, words in (("params", "parameters"), ("macs", "MACs"), ("flops", "FLOPs")):
        printed = [figure for figure in ledger.published_beside_ours() if figure["quantity"] == quantity]
        exact = units.exact(int(reference[quantity])) if reference and quantity in reference else ""
        who = reference["source"] if reference and quantity == "params" else ""
        if quantity == "flops" and not printed:
            continue
        for figure in printed or [None]:
            line = [*start, words, units.exact(ledger.total(quantity)), exact]
            if figure:
                said = "; ".join(str(figure[key]) for key in ("source", "convention", "note") if figure.get(key))
                line += [units.count(figure["published"]), f"{figure['difference']:+.2%}", said]
            else:
                line += ["", "", ""]
            if who:
                line[-1] = f"reference: {who}" + (f"; in print: {line[-1]}" if line[-1] else "")
            yield line
            start, who = ["", "", ""], ""


def kinds() -> None:
    """Every component of the grammar: its kind, its fields with their defaults, and what it says of itself."""
    import msgspec

    from xfcost.formulas.component import tag_of
    from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
    from xfcost.mechanisms import MECHANISMS

    places = {
        "in a block: mixers": MECHANISMS,
        "in a block: per token": SUBLAYERS,
        "`embed`": EMBEDS,
        "`enter`": ENTERS,
        "`head`": HEADS,
    }
    for title, components in places.items():
        cog.outl(f"\n### {title}\n")
        for component in components:
            cog.outl(f"**`kind: {tag_of(component)}`** — {(component.__doc__ or '').strip().splitlines()[0]}\n")
            for info in msgspec.structs.fields(component):
                needed = info.default is msgspec.NODEFAULT and info.default_factory is msgspec.NODEFAULT
                default = "required" if needed else f"default `{_yaml(info.default)}`"
                cog.outl(f"- `{info.name}`: {default}")
            cog.outl("")


def _yaml(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def survey() -> None:
    """Derived orders beside the survey's column, then what explains each."""
    from survey import ENTRIES, lines
    from tabulate import tabulate

    cog.outl("\n" + tabulate(lines(), headers="keys", tablefmt="github", disable_numparse=True) + "\n")
    for entry in ENTRIES:
        cog.outl(f"- **{entry.system}.** {entry.why}")
    cog.outl("")


def vision() -> None:
    """What mixes in every mechanism that the survey leaves out."""
    from tabulate import tabulate
    from vision import lines

    cog.outl("\n" + tabulate(lines(), headers="keys", tablefmt="github", disable_numparse=True) + "\n")


def letters() -> None:
    """What the letters of orders stand for."""
    from xfcost.formulas.letters import LETTERS

    cog.outl("\n" + ", ".join(f"{letter} {meaning}" for letter, meaning in LETTERS.items()) + ".\n")


def training(what: str) -> None:
    """Optimizers' conventions, or training compute in print beside ours."""
    import training as tables
    from tabulate import tabulate

    lines = {"optimizers": tables.optimizer_lines, "computes": tables.compute_lines, "times": tables.time_lines}
    cog.outl("\n" + tabulate(lines[what](), headers="keys", tablefmt="github", disable_numparse=True) + "\n")
