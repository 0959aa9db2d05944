"""Work that a module hands to other threads: recorded there, for the module that hands it over.

torch shows the operations of a thread to the modes of that thread alone. Threads that start during a run, and calls
that go to a `concurrent.futures` pool, get a recorder of their own, which adds to the same operations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

# Gives a context in which another thread is recorded; called in the thread that hands the work over.
Recorded = Callable[[], AbstractContextManager[Any]]


@contextmanager
def threads_recorded(recorded: Recorded) -> Iterator[None]:
    """Record what threads do that start inside, or get work inside."""
    own, start, submit = threading.get_ident(), threading.Thread.start, ThreadPoolExecutor.submit
    inside: set[int] = set()

    def handed(function: Callable[..., Any]) -> Callable[..., Any]:
        context = recorded()

        def run(*args: Any, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            if thread == own or thread in inside:  # of a pool whose thread has started inside
                return function(*args, **kwargs)
            inside.add(thread)
            try:
                with context:
                    return function(*args, **kwargs)
            finally:
                inside.discard(thread)

        return run

    def started(thread: threading.Thread) -> None:
        vars(thread)["run"] = handed(thread.run)
        start(thread)

    def submitted(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(pool, handed(function), *args, **kwargs)

    with patch.object(threading.Thread, "start", started), patch.object(ThreadPoolExecutor, "submit", submitted):
        yield
