"""Progress on stderr: how long something takes, and a bar where it is a terminal."""

from __future__ import annotations

from typing import Final

from rich import progress
from rich.console import Console

from xfcost.ledger.units import HOUR

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
