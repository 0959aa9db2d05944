"""One option of commands and of the API: its type, help, default and reader."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from xfcost.ledger.option_readers import one_of

Whole = int | str | None
"""A whole number, which a caller may give as a text."""
Real = float | str | None
"""Any number, likewise."""


class Option(msgspec.Struct, frozen=True):
    """One option."""

    help: str
    """Its text in `--help`."""
    metavar: str | None = None
    read: Callable[[str, Any], Any] = lambda option, given: given
    """Its flag, for messages, and the given value -> checked value; raises a UsageError."""
    default: Any = None
    python: str = ""
    """A further sentence in the API's documentation."""
    flag: str | None = None
    """How it is written on the command line if that isn't its name; empty if only Python has it."""
    words: tuple[str, ...] = ()
    """The values that it takes: the help shows them, and the shell completes them."""


def choice(text: str, values: Collection[str], **more: Any) -> Option:
    """An option that takes one of `values`."""
    return Option(text, read=one_of(values), words=tuple(values), **more)
