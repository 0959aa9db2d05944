"""A process that runs other people's Python code ends when its own command is through, not when that code says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NoReturn

# What ends a process, or replaces its program, without an exception.
_ENDS: Final = ("_exit", "execv", "execve")


def refuse_sudden_ends() -> Callable[[], None]:
    """Let `os._exit` and `os.exec*` raise SystemExit in every thread of this process; what is returned undoes it.

    In processes forked from this one they work as ever, but these can't fork: a model whose forward forks is run
    several times, and the processes would double each time. Native code can still end the process.
    """
    modules = (os, sys.modules[os.name])  # `os` has them from `posix` or `nt`
    before = [(module, name, getattr(module, name)) for module in modules for name in _ENDS]
    for module, name, end in before:
        setattr(module, name, _refusing(end, os.getpid()))
    if hasattr(os, "fork"):
        before += [(module, "fork", os.fork) for module in modules]
        forking = _forking_once(os.fork, os.getpid())
        for module in modules:
            setattr(module, "fork", forking)  # noqa: B010 - typed as read-only

    def undo() -> None:
        for module, name, end in before:
            setattr(module, name, end)

    return undo


def _refusing(end: Callable[..., NoReturn], process: int) -> Callable[..., NoReturn]:
    @wraps(end)
    def refuse(*given: Any) -> NoReturn:
        if os.getpid() != process:
            end(*given)
        raise SystemExit(f"it called os.{end.__name__}")

    return refuse


def _forking_once(fork: Callable[[], int], process: int) -> Callable[[], int]:
    @wraps(fork)
    def forking() -> int:
        if os.getpid() != process:
            raise OSError("a process that was forked while the code of a model ran forks again")
        return fork()

    return forking
