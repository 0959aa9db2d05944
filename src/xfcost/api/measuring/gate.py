"""A device is timed by one row at a time, with no other row of the command being prepared meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


class Gate:
    """Rows are prepared side by side, and timed alone.

    A row that is prepared goes before those that are not: so the next ones are prepared together too.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._preparing = 0
        self._prepared = 0
        self._timing = False

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """While no row is timed or waits for that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timing and not self._prepared)
            self._preparing += 1
        try:
            yield
        finally:
            with self._changed:
                self._preparing -= 1
                self._changed.notify_all()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Alone."""
        with self._changed:
            self._prepared += 1
            self._changed.wait_for(lambda: not self._timing and not self._preparing)
            self._prepared -= 1
            self._timing = True
        try:
            yield
        finally:
            with self._changed:
                self._timing = False
                self._changed.notify_all()


class Turn:
    """One row's way through the gate."""

    def __init__(self, gate: Gate, clock: Callable[[], float]) -> None:
        self._gate, self._clock = gate, clock
        self.waited = 0.0
        """Seconds before the gate."""

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """The process starts, counts, and predicts its memory."""
        with self._after(self._gate.preparing()):
            yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """The process measures."""
        with self._after(self._gate.timing()):
            yield

    @contextmanager
    def _after(self, opening: AbstractContextManager[None]) -> Iterator[None]:
        started = self._clock()
        with opening:
            self.waited += self._clock() - started
            yield
