"""The cog blocks of README.md and docs/: commands with their output, and generated tables.

`make docs` writes the blocks; `make lint` fails if a block differs from the current output.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

import cog

import in_process

# The commands of docs/cli.md by what they are for.
TOPICS = {
    "Count and compare": ("analyze", "compare", "diff", "check", "find"),
    "Draw": ("plot", "roofline", "diagram", "glance", "report"),
    "Time and devices": ("measure", "calibrate", "devices"),
    "How information travels": ("reach", "stream"),
    "Published tables": ("layers", "survey"),
    "Models and specs": ("list", "show", "new", "import", "schema"),
    "This installation": ("doctor",),
}


def run(arguments: str, *, first: int | None = None, last: int | None = None) -> None:
    """`$ xfcost ARGUMENTS` and its output, or the first and last lines of it."""
    lines = output(arguments).splitlines()
    if first is not None and len(lines) > first + (last or 0):
        lines = [*lines[:first], "…", *(lines[-last:] if last else [])]
    _shell(arguments, lines)


def lines_of(arguments: str, word: str, count: int) -> None:
    """`$ xfcost ARGUMENTS` and `count` lines of its output, from the first line with `word`."""
    lines = output(arguments).splitlines()
    first = next(number for number, line in enumerate(lines) if word in line)
    _shell(arguments, ["…", *lines[first : first + count], "…"])


def section(arguments: str, word: str) -> None:
    """`$ xfcost ARGUMENTS` and its output from the first line with `word` to the next empty line."""
    lines = output(arguments).splitlines()
    first = next(number for number, line in enumerate(lines) if word in line)
    last = next((number for number in range(first, len(lines)) if not lines[number].strip()), len(lines))
    _shell(arguments, ["…", *lines[first:last], "…"])


def refused(arguments: str) -> None:
    """`$ xfcost ARGUMENTS` and its error: a command that is refused."""
    done = _done(arguments)
    if done.returncode != 2:  # noqa: PLR2004 - bad input
        raise AssertionError(f"xfcost {arguments}: expected to be refused, exit code {done.returncode}")
    _shell(arguments, done.stderr.rstrip().splitlines())


def verdict(arguments: str) -> None:
    """`$ xfcost ARGUMENTS` that finds something, and its output: its exit code is 1."""
    done = _done(arguments)
    if done.returncode != 1:
        raise AssertionError(f"xfcost {arguments}: expected exit code 1, got {done.returncode}")
    _shell(arguments, done.stdout.splitlines())


def _shell(arguments: str, lines: Iterable[str]) -> None:
    """`$ xfcost ARGUMENTS` and these lines of its output."""
    cog.outl("\n".join(["", "```text", f"$ xfcost {arguments}", *(line.rstrip() for line in lines), "```", ""]))


def contents(path: str) -> None:
    """A file of this repository, YAML or Python."""
    language = {".yaml": "yaml", ".py": "python"}[Path(path).suffix]
    cog.outl(f"\n```{language}\n" + Path(path).read_text(encoding="utf-8").rstrip() + "\n```\n")


def definition(path: str, name: str) -> None:
    """A function or a constant of a Python file of this repository."""
    text = Path(path).read_text(encoding="utf-8")
    statements = (ast.get_source_segment(text, one) for one in ast.parse(text).body)
    (found,) = (one for one in statements if one.startswith((f"def {name}(", f"{name} = ")))
    cog.outl(f"\n```python\n{found}\n```\n")


def output(arguments: str) -> str:
    """A command's stdout, 100 columns wide, without colour."""
    done = _done(arguments)
    done.check_returncode()
    return done.stdout


def _done(arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "TERM": "dumb"}
    return in_process.run(shlex.split(arguments), None, environment)


def on_this_page() -> None:
    """Links to the sections of the page that is being written."""
    page = re.sub(r"^```.*?^```", "", Path(cog.inFile).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    cog.outl(f"\nOn this page: {' · '.join(f'[{title}](#{anchor(title)})' for title in titles)}\n")


def anchor(heading: str) -> str:
    """The anchor of a heading, for GitHub and for mkdocs, which writes one hyphen where GitHub writes two."""
    name = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    if "--" in name:
        raise AssertionError(f"{heading}: its anchors differ; no sign may be between blanks")
    return name


def help_pages() -> None:
    """Every command's `--help`, topic by topic; the options of `analyze`, of which the others have some, in parts."""
    from xfcost.cli import COMMANDS

    missing = set(COMMANDS) - {name for names in TOPICS.values() for name in names}
    if missing:
        raise AssertionError(f"docs/cli.md: no topic has {', '.join(sorted(missing))}; add them to blocks.TOPICS")
    usage, _, commands = output("--help").partition("Commands:\n")
    summaries = dict(re.findall(r"^  (\w+) +(\S.*)$", commands, flags=re.MULTILINE))
    cog.outl(f"\n```text\n{usage.rstrip()}\n```")
    for topic, names in TOPICS.items():
        links = [f"- [`{name}`](#{anchor(f'xfcost {name}')}): {summaries[name]}" for name in names]
        cog.outl("\n".join(["", f"**{topic}**", "", *links]))
    for topic, names in TOPICS.items():
        cog.outl(f"\n## {topic}")
        for name in names:
            _help_page(name)
    cog.outl()


def _help_page(name: str) -> None:
    """A section for a command; of `analyze` with a heading for each topic of its options."""
    page = output(f"{name} --help" + " all" * (name == "analyze")).rstrip()
    topics = re.split(r"^(?!Arguments)([A-Z][\w ,-]*):\n", page, flags=re.MULTILINE) if name == "analyze" else [page]
    cog.outl(f"\n### `xfcost {name}`\n\n```text\n{topics[0].rstrip()}\n```")
    titles = [title.partition(",")[0] for title in topics[1::2]]
    if titles:
        cog.outl(f"\nIts options: {' · '.join(f'[{title}](#{anchor(title)})' for title in titles)}")
    for title, text in zip(titles, topics[2::2], strict=True):
        cog.outl(f"\n#### {title}\n\n```text\n{text.rstrip()}\n```")


def conventions() -> None:
    """The table of FLOPs per element."""
    from tabulate import tabulate

    from xfcost.formulas.conventions import FLOPS_PER_ELEMENT

    rows = [[f"`{name}`", flops] for name, flops in FLOPS_PER_ELEMENT.items()]
    cog.outl("\n" + tabulate(rows, headers=["work", "FLOPs per element"], tablefmt="github") + "\n")


def families() -> None:
    """The gallery's families with their numbers of presets."""
    from gallery import families, lines
    from tabulate import tabulate

    table = tabulate(list(families()), headers="keys", tablefmt="github", disable_numparse=True)
    cog.outl(f"\n{len(lines())} presets:\n\n{table}\n")


def kinds() -> None:
    """Links to all structs of the grammar, then each with a table of its keys."""
    from grammar_tables import index, sections

    cog.outl(f"\n{index()}")
    for title, structs in sections():
        cog.outl(f"\n### {title}\n")
        cog.outl("\n".join(structs))


def markdown(arguments: str) -> None:
    """The output of a command that is Markdown already."""
    cog.outl(f"\n{output(arguments).rstrip()}\n")


def vision() -> None:
    """Mixing operations of every mechanism that the survey leaves out."""
    from tabulate import tabulate
    from vision import lines

    cog.outl("\n" + tabulate(lines(), headers="keys", tablefmt="github", disable_numparse=True) + "\n")


def swin_table() -> None:
    """Table 1(a) of Swin's paper beside counted and traced models."""
    from swin_table import lines
    from tabulate import tabulate

    cog.outl("\n" + tabulate(list(lines()), headers="keys", tablefmt="github", disable_numparse=True) + "\n")


def transformers() -> None:
    """The table of models of transformers beside torch's counter, out of docs/transformers.csv."""
    from tabulate import tabulate
    from transformers_table import shown

    table = tabulate(shown(), headers="keys", tablefmt="github", disable_numparse=True)
    cog.outl(f"\n{table}\n")


def glossary() -> None:
    """Every quantity of the reports: its name in JSON and CSV, its unit, its words and what it is."""
    from tabulate import tabulate

    from xfcost.comparing.quantities import QUANTITIES, unit_of

    rows = [(f"`{key}`", unit_of(key) or "–", one.name, one.meaning) for key, one in QUANTITIES.items()]
    table = tabulate(rows, ("name", "unit", "in reports", "what it is"), tablefmt="github", disable_numparse=True)
    cog.outl(f"\n{table}\n")


def letters() -> None:
    """The meanings of the letters in orders."""
    from xfcost.formulas.letters import LETTERS

    cog.outl("\n" + ", ".join(f"{letter} {meaning}" for letter, meaning in LETTERS.items()) + ".\n")


def training(table: str) -> None:
    """One table of docs/training.md: `optimizers`, `computes` or `times`."""
    import training as tables
    from tabulate import tabulate

    lines = {"optimizers": tables.optimizer_lines, "computes": tables.compute_lines, "times": tables.time_lines}
    cog.outl("\n" + tabulate(lines[table](), headers="keys", tablefmt="github", disable_numparse=True) + "\n")


def published_training(table: str) -> None:
    """One table of docs/training-runs.md, by the name of its function without `_lines`."""
    import training_measured
    import training_memory
    import training_runs
    from tabulate import tabulate

    name = f"{table}_lines"
    tables = next(module for module in (training_runs, training_memory, training_measured) if hasattr(module, name))
    lines = getattr(tables, name)()
    cog.outl("\n" + tabulate(lines, headers="keys", tablefmt="github", disable_numparse=True) + "\n")
