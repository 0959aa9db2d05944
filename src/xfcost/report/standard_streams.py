"""stdout belongs to the command's answer: other code writes to stderr, and no encoding breaks the answer."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from xfcost.ledger.visible import HANDLER

# How Python refuses what an encoding lacks where nobody chose otherwise (PYTHONIOENCODING=cp1252:replace does).
_NOT_CHOSEN = ("strict", "surrogateescape", "backslashreplace")


def own_stdout() -> TextIO:
    """Give the answer a descriptor of its own; what others write to descriptor 1, at any time, goes to stderr.

    Other programs and native code write there, past `sys.stdout`.
    """
    stream = sys.stdout
    with suppress(OSError, ValueError, AttributeError):  # replaced by one without a descriptor, as in a notebook
        if stream.fileno() == 1:
            stream.flush()
            answers = os.dup(1)
            os.dup2(2, 1)
            sys.stdout = open(answers, "w", encoding=stream.encoding, errors=stream.errors)  # noqa: SIM115
    return sys.stdout


def leave_stdout() -> None:
    """After the answer: what is printed while the process ends goes to stderr."""
    sys.stdout = sys.stderr


def substitute() -> None:
    """Let stdout and stderr write what their encodings have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _NOT_CHOSEN:
            stream.reconfigure(errors=HANDLER)
