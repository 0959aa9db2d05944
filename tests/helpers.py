"""What the tests of the command line share."""

import csv
import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

from rich.console import Console

import in_process
import preloaded

# What changes how a command looks, wherever the tests run.
_LOOKS = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")


# The run options of float32 and eager attention, for tests whose figures are theirs.
PLAIN: Final = {"dtype": "float32", "attention": "eager"}


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what changes the looks, and with `more`."""
    return (
        {name: value for name, value in os.environ.items() if name not in _LOOKS} | {"PYTHONIOENCODING": "utf-8"} | more
    )


def report_text(found, form="table", *by, **how):
    """The report of `analyze` or `compare` in a format."""
    from xfcost.comparing.comparison import Comparison

    module = "compare" if isinstance(found, Comparison) else "analyze"
    return import_module(f"xfcost.views.{module}").document(found, *by, **how).text(form)


def found_memory(need):
    """What `find` has of the memory of a run on devices: of activations the attention matrices alone."""
    return need.weights + need.cache + need.attention


def least_macs(ledger):
    """The MACs of all blocks that masks and patterns keep, rounded down for each row."""
    from xfcost.ledger.least_work import kept_macs, kept_shares

    shares = kept_shares(ledger.rows, ledger.metadata.batch)
    return sum(row.times * kept_macs(row, shares) for row in ledger.rows)


def totals(found):
    """Quantity -> its total before and after, as `diff` has it."""
    return {total.quantity: (total.before, total.after) for total in found.totals}


def screen_of(found, width):
    """The lines of a document on a terminal of that width."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(found.terminal(width))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def words_of(*words):
    """The command line of `xfcost WORDS`."""
    return [sys.executable, "-m", "xfcost", *map(str, words)]


def xf(*words, cwd=None, **more):
    """`xfcost WORDS` in this process, with `more` in the environment: its exit code, standard output and error."""
    return in_process.run([*map(str, words)], cwd, environment(**more))


def command(*words, cwd=None, **more):
    """`xfcost WORDS` as a command of its own, where streams, signals, ends of processes or start-up are tested."""
    return preloaded.run([*map(str, words)], cwd, environment(**more))


def stdout_of(*words, **more):
    """What a command prints that succeeds."""
    done = xf(*words, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def error_of(*words, **more):
    """What a command says that is refused: exit code 2, nothing on stdout, no traceback."""
    done = xf(*words, **more)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def table_of(text):
    """The rows of CSV, or of a file of it."""
    text = text.read_text(encoding="utf-8") if isinstance(text, Path) else text
    return list(csv.DictReader(io.StringIO(text)))


def csv_of(*words, **more):
    """The rows that a command prints as CSV."""
    return table_of(stdout_of(*words, "--format", "csv", **more))
