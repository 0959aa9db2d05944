"""Progress of a sweep on stderr: a line per row, above a bar where it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.text import Text

from xfcost.ledger.measurements import Configuration, Measurement
from xfcost.ledger.visible import visible
from xfcost.report.messages import say
from xfcost.report.progress import bar, left_text
from xfcost.views.measurements import configuration_text, outcome_text


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


def sweep_progress() -> SweepLines:
    """A bar where stderr is a terminal."""
    return SweepBar() if sys.stderr is not None and sys.stderr.isatty() else SweepLines()
