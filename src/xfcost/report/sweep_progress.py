"""The progress of a sweep on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from xfcost.ledger.measurements import Configuration, Measurement
from xfcost.ledger.units import HOUR
from xfcost.ledger.visible import visible
from xfcost.report.measurements import configuration_text, outcome_text
from xfcost.report.messages import say

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


class Lines:
    """A line per row that is measured."""

    def __init__(self) -> None:
        self._total = 0
        self._left: float | None = None

    def close(self) -> None:
        """Nothing is left open."""

    def started(self, total: int, before: int) -> None:
        """How many rows, and how many of them the file has."""
        self._total = total
        if before:
            say(f"{before:,} of {total:,} are in the file already")

    def running(self, number: int, configuration: Configuration, left: float | None) -> None:
        """The row that begins is said when it ends, with the time that was left."""
        self._left = left

    def measured(self, number: int, row: Measurement) -> None:
        """`[3/40] ViT-S/8, N = 784: 12.3 ms, 45.2 MiB (about 4 min left)`."""
        say(self._line(number, row))

    def _line(self, number: int, row: Measurement) -> str:
        left = left_text(None if self._left is None else max(self._left - row.process_seconds, 0.0))
        after = f" ({left})" if left and number < self._total else ""
        return f"[{number}/{self._total}] {configuration_text(row.configuration)}: {outcome_text(row)}{after}"


class Bar(Lines):
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


def bar() -> Progress:
    """A bar on stderr: how many of all, and a description. Drawn when it is updated, and taken away at the end."""
    return Progress(
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True, highlight=False, emoji=False, markup=False),
        auto_refresh=False,
        transient=True,
    )


def sweep_progress() -> Lines:
    """A bar where stderr is a terminal."""
    return Bar() if sys.stderr is not None and sys.stderr.isatty() else Lines()
