"""What is said on stderr, errors and progress: shown safely, and never the reason why a command ends otherwise."""

from __future__ import annotations

import os
import sys

from xfcost.ledger.visible import visible


def say(text: str) -> None:
    """A line on stderr; where stderr is full or closed, nothing."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{visible(text)}\n".encode(errors="backslashreplace").decode())
        sys.stderr.flush()
    except (OSError, ValueError):
        settle()


def settle() -> None:
    """Whatever stderr still holds and can't write goes nowhere: Python would end with code 120 over it."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)


def open_stderr() -> None:
    """A closed stderr becomes a void, lest the next file that is opened takes its number, and with it what is said."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process is
