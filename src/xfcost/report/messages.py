"""Errors and progress on stderr; an stderr that can't be written never changes how a command ends."""

from __future__ import annotations

import os
import sys

from xfcost.ledger.visible import one_line


def say(text: str) -> None:
    """A line on stderr, whatever names are in it; where stderr is full or closed, nothing."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{one_line(text)}\n".encode(errors="backslashreplace").decode())
        sys.stderr.flush()
    except (OSError, ValueError):
        settle()


def settle() -> None:
    """Discard what stderr holds and can't write: Python would end with code 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(2)


def discard(stream: int) -> None:
    """Whatever is still written to `stream` goes nowhere, without a message."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream)
    os.close(nowhere)


def open_stderr() -> None:
    """A closed stderr is opened on the null device: else the next open file would take its number, and the messages."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process is
