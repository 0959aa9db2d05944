"""Errors and progress on stderr, which never change how a command ends; and Ctrl-C, which ends it with code 130."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from os import _exit  # a command that runs a module's code refuses `os._exit` there
from typing import Any, Final, NoReturn, TextIO

from xfcost.ledger.visible import HANDLER, one_line

_QUIET: ContextVar[bool] = ContextVar("_QUIET", default=False)


def be_quiet(quiet: bool = True) -> None:
    """From now on stderr has errors alone (`-q`), or progress too."""
    _QUIET.set(quiet)


def say(text: str) -> None:
    """A line of progress on stderr, whatever names are in it; where stderr is full or closed, or with `-q`, nothing."""
    if not _QUIET.get():
        refuse(text)


def refuse(text: str) -> None:
    """A line of an error on stderr, as `say` writes others."""
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


def warn_once() -> None:
    """Show each warning once, however often xfcost runs the code that gives it."""
    show, shown = warnings.showwarning, set[tuple[str, type[Warning], str, int]]()

    def show_new(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *more: Any, **named: Any
    ) -> None:
        known = (str(message), category, filename, lineno)
        if known not in shown:
            shown.add(known)
            show(message, category, filename, lineno, *more, **named)

    warnings.showwarning = show_new


# 128 + SIGINT, as in shells.
EXIT_CODE: Final = 130

_CLEANUPS: Final[list[Callable[[], Any]]] = []


def end_on_interrupt() -> None:
    """Install a handler: the first SIGINT ends the process; later ones are ignored during the clean-up.

    A process that started with SIGINT ignored (`nohup`, a background job) still ignores it.

    KeyboardInterrupt would not work: torch swallows an exception in one of its callbacks, and takes a second or more to
    unload, while a second interrupt kills the interpreter. The Python API installs no handler: there the caller does.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def cleaned_up_on_interrupt(cleanup: Callable[[], Any]) -> Iterator[None]:
    """While the block runs, an interrupt calls `cleanup` before the process ends."""
    _CLEANUPS.append(cleanup)
    try:
        yield
    finally:
        _CLEANUPS.remove(cleanup)


def _end(*_: Any) -> NoReturn:
    signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN: Python reports a signal that is pending then
    for cleanup in reversed(_CLEANUPS):
        with suppress(Exception):  # the others must still run
            cleanup()
    _exit(EXIT_CODE)
