"""Progress of a search over ranges on stderr: how long it takes, and a bar where it is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich import progress

from xfcost.questions.find.search import FindProgress
from xfcost.report.messages import cleaned_up_on_interrupt
from xfcost.report.progress import bar, left_text

# Searches that are expected to end sooner say nothing.
_SECONDS: Final = 2.0


class SearchTime:
    """Says once, after the first answers, how long a long search takes; then draws the bar."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float], bar: progress.Progress | None) -> None:
        self._say, self._clock, self._bar = say, clock, bar
        self._start = clock()
        self._first: tuple[float, int] | None = None
        self._told = False
        self._task = bar.add_task("", total=None) if bar else None

    def done(self, done: int, total: int) -> None:
        """So many configurations of all."""
        now = self._clock()
        if self._first is None:  # they also filled the caches, and say nothing about the rate
            self._first = now, done
            return
        since, before = self._first
        left = (total - done) * (now - since) / (done - before)
        if not self._told and left > _SECONDS:
            self._told = True
            self._say(f"{left_text(left)} ({(done - before) / (now - since):,.0f} configurations per second)")
        if self._bar is not None and self._task is not None and self._told:
            self._bar.start()
            self._bar.update(self._task, completed=done, total=total, description=left_text(left), refresh=True)

    def close(self) -> None:
        """The bar is taken away."""
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def find_progress(say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Iterator[FindProgress]:
    """Progress on stderr."""
    expected = SearchTime(say, clock, bar() if sys.stderr is not None and sys.stderr.isatty() else None)
    with cleaned_up_on_interrupt(expected.close):
        try:
            yield FindProgress(say, expected.done)
        finally:
            expected.close()
