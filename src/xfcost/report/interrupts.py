"""Ctrl-C on the command line: the process cleans up and ends at once with exit code 130.

KeyboardInterrupt would not work: torch swallows an exception in one of its callbacks, and takes a second or more to
unload, while a second interrupt kills the interpreter. The Python API installs no handler: in a program or a notebook
the caller handles interrupts.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import _exit  # a command that runs a module's code refuses `os._exit` there
from typing import Any, Final, NoReturn

# 128 + SIGINT, as in shells.
EXIT_CODE: Final = 130

_CLEANUPS: Final[list[Callable[[], Any]]] = []


def end_on_interrupt() -> None:
    """Install a handler: the first SIGINT ends the process; later ones are ignored during the clean-up.

    A process that started with SIGINT ignored (`nohup`, a background job) still ignores it.
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
