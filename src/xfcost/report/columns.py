"""The columns that `--columns` chooses of the tables of Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from xfcost.ledger.errors import UsageError, nearest, printable

# Headings of the columns that name the rows, where the first column does not.
_NAMES: Final = ("operation", "preset", "block")


class _Chosen:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.missed = set(names)
        self.known: dict[str, None] = {}


_CHOSEN: ContextVar[_Chosen | None] = ContextVar("_CHOSEN", default=None)


@contextmanager
def choosing(text: str) -> Iterator[None]:
    """Inside the block, tables show the columns whose headings `text` names, with commas between."""
    token = _CHOSEN.set(_Chosen([*dict.fromkeys(name.strip() for name in text.split(","))]))
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def is_chosen() -> bool:
    """Are columns chosen?"""
    return _CHOSEN.get() is not None


def chosen(heads: Sequence[str]) -> list[int] | None:
    """The places of the chosen columns, as they are named; None where none is, or a table has none of them.

    The column that names the rows stays, and comes first where it is not chosen.
    """
    choice = _CHOSEN.get()
    if choice is None:
        return None
    choice.known |= dict.fromkeys(head for head in heads if head)
    places = {head.lower(): place for place, head in enumerate(heads)}
    there = [name for name in choice.names if name.lower() in places]
    choice.missed -= set(there)
    found = [places[name.lower()] for name in there]
    names = next((places[name] for name in _NAMES if name in places), 0)
    return [names, *found] if found and names not in found else found or None


def check_chosen() -> None:
    """Refuse a choice that no table of a report has, when all are written.

    Raises:
        UsageError: a column is in none of them.
    """
    choice = _CHOSEN.get()
    for name in choice.names if choice else ():
        if choice and name in choice.missed:
            raise UsageError(f"--columns {printable(name)}: no table here has it; {nearest(name, choice.known)}")
