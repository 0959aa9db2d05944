"""What Ctrl-C does to the command line: the process cleans up, and ends at once with exit code 130.

Raising KeyboardInterrupt would not do: torch swallows an exception that is raised inside one of its callbacks, and it
takes a second or more to unload, in which a second interrupt kills the interpreter. The Python API installs nothing:
in a program or a notebook an interrupt is the caller's business.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn

# 128 + the number of SIGINT, as shells have it.
EXIT_CODE: Final = 130

_CLEANUPS: Final[list[Callable[[], Any]]] = []


def end_on_interrupt() -> None:
    """From now on, the first SIGINT ends the process; later ones are ignored while it cleans up.

    A process that was started with SIGINT ignored (`nohup`, a background job) keeps it ignored.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for cleanup in reversed(_CLEANUPS):
        with suppress(Exception):  # the others must still run
            cleanup()
    os._exit(EXIT_CODE)
