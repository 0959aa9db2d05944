"""Progress on stderr: of a sweep its rows, of a search over ranges how long it takes; bars where it is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich import progress
from rich.console import Console
from rich.text import Text

from xfcost.counting.find.search import FindProgress
from xfcost.ledger.measurements import Configuration, Measurement
from xfcost.ledger.units import HOUR
from xfcost.ledger.visible import visible
from xfcost.report.measurements import configuration_text, outcome_text
from xfcost.report.messages import cleaned_up_on_interrupt, say

_MINUTE: Final = 60


def left_text(seconds: float | None) -> str:
    """`about 4 min left`; nothing where it is not known yet."""
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"about {max(round(seconds), 1)} s left"
    if seconds < HOUR:
        return f"about {seconds / _MINUTE:.0f} min left"
    return f"about {seconds / HOUR:.1f} h left"


class SweepLines:
    """A line per row that is measured."""

    def __init__(self, say: Callable[[str], None] = say) -> None:
        self._say, self._total = say, 0
        self._left: float | None = None

    def close(self) -> None:
        """Nothing is left open."""

    def started(self, total: int, before: int) -> None:
        """How many rows, and how many of them the file has."""
        self._total = total
        if before:
            self._say(f"{before:,} of {total:,} are in the file already")

    def running(self, number: int, configuration: Configuration, left: float | None) -> None:
        """The row that begins is printed when it ends, with the time that was left."""
        self._left = left

    def measured(self, number: int, row: Measurement) -> None:
        """`[3/40] ViT-S/8, N = 784: 12.3 ms, 45.2 MiB (about 4 min left)`."""
        self._say(self._line(number, row))

    def _line(self, number: int, row: Measurement) -> str:
        left = left_text(None if self._left is None else max(self._left - row.process_seconds, 0.0))
        after = f" ({left})" if left and number < self._total else ""
        return f"[{number}/{self._total}] {configuration_text(row.configuration)}: {outcome_text(row)}{after}"


class SweepBar(SweepLines):
    """The same lines above a bar, which is drawn when a row begins or ends: no thread of its own disturbs the clock."""

    def __init__(self) -> None:
        super().__init__()
        self._bar = bar()
        self._task = self._bar.add_task("", total=None)

    def close(self) -> None:
        """The bar is taken away, and the cursor is back."""
        self._bar.stop()

    def started(self, total: int, before: int) -> None:
        """The bar appears."""
        super().started(total, before)
        self._bar.start()
        self._bar.update(self._task, total=total, completed=before, refresh=True)

    def running(self, number: int, configuration: Configuration, left: float | None) -> None:
        """The bar names the row."""
        super().running(number, configuration, left)
        words = ", ".join(word for word in (configuration_text(configuration), left_text(left)) if word)
        self._bar.update(self._task, description=visible(words), refresh=True)

    def measured(self, number: int, row: Measurement) -> None:
        """A line above the bar."""
        self._bar.print(Text(visible(self._line(number, row))))
        self._bar.update(self._task, advance=1, refresh=True)


def bar() -> progress.Progress:
    """A bar on stderr: how many of all, and a description. Drawn when it is updated, and taken away at the end."""
    return progress.Progress(
        progress.MofNCompleteColumn(),
        progress.BarColumn(),
        progress.TextColumn("{task.description}", markup=False),
        console=Console(stderr=True, highlight=False, emoji=False, markup=False),
        auto_refresh=False,
        transient=True,
    )


def sweep_progress() -> SweepLines:
    """A bar where stderr is a terminal."""
    return SweepBar() if sys.stderr is not None and sys.stderr.isatty() else SweepLines()


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
