"""Notes below a report: a few, or with --verbose all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

# Notes of a report that is not verbose.
_MOST_NOTES: Final = 2


def note_texts(notes: Iterable[str], *, verbose: bool) -> Iterator[Text]:
    """A line per note; beyond a few, how many more there are."""
    every = list(notes)
    some = every if verbose else every[:_MOST_NOTES]
    yield from (Text(f"note: {note}") for note in some)
    if hidden := len(every) - len(some):
        yield Text(f"{hidden} more note{'s' if hidden > 1 else ''}: --verbose", style="dim")
