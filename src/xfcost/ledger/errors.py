"""Every error that a user can cause, as one short tree.

XfcostError            exit code 2, one message, no traceback
├── SpecError          the YAML says something that can't be: file:line, path, what was expected, how to mend
├── UsageError         an option or argument of the command line (or of the Python API) can't be
├── OutputError        a file can't be written
└── DeviceError        a device is absent, or the model can't fit on it

`ComponentError` is not for users: a component raises it with its field's name, and the loader, which knows the file and
the line, turns it into a SpecError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

# Names that a message lists before it says "…".
MOST_NAMES: Final = 16
# Errors of one spec that are told before it says how many more there are.
MOST_ERRORS: Final = 20


class XfcostError(Exception):
    """Base of all errors that are caught once, in `cli.py`, and printed without a traceback."""

    exit_code = 2


class SpecError(XfcostError):
    """A spec that can't be read or can't be built.

    Args:
        message: what is wrong, and where.
        at: the file and the line of it, where it has one.
        path: where it stands in the spec.
        parts: the errors that it tells together.
    """

    def __init__(
        self,
        message: str,
        at: tuple[str, int] | None = None,
        path: tuple[str | int, ...] = (),
        parts: tuple[SpecError, ...] = (),
    ) -> None:
        super().__init__(message)
        self.at = at
        self.path = path
        self.parts = parts or (self,)


def together(errors: Iterable[SpecError]) -> SpecError:
    """All that is wrong with a spec as one error, each thing once, in the order of the files."""
    said = {str(one): one for error in errors for one in error.parts}
    if len(said) == 1:
        return next(iter(said.values()))
    files = list(dict.fromkeys(error.at[0] for error in said.values() if error.at))
    lines = sorted(said.values(), key=lambda error: (files.index(error.at[0]), error.at[1]) if error.at else (-1, 0))
    return SpecError(all_wrong([str(line) for line in lines]), lines[0].at, parts=tuple(lines))


def all_wrong(said: Sequence[str]) -> str:
    """Several messages as one, a line for each; one alone as it is."""
    if len(said) == 1:
        return said[0]
    more = [f"… and {len(said) - MOST_ERRORS:,} more"] if len(said) > MOST_ERRORS else []
    return "\n  ".join([f"{len(said):,} things are wrong:", *said[:MOST_ERRORS], *more])


class UsageError(XfcostError):
    """An argument that can't be honoured."""


class OutputError(XfcostError):
    """A file that can't be written; nothing of it is left behind."""


class DeviceError(XfcostError):
    """A device that isn't there, or a model that doesn't fit on it."""


class ComponentError(Exception):
    """What a component finds wrong with one of its fields at a given place in an architecture."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


def printable(text: str, most: int = 60) -> str:
    """`text` as a message can show it: on one line, not endless, without control characters."""
    plain = text if text.isprintable() else repr(text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def shown(given: object, most: int = 60) -> str:
    """What was given to an option, as a message about it can show it: on one line and not endless."""
    try:
        return printable(str(given), most)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"(a number of thousands of digits, in a value of type {type(given).__name__})"


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Known names that `name` may have been meant to be, the nearest first."""
    lower = {word.lower(): word for word in sorted(known, reverse=True)}
    import difflib  # bad input alone needs it

    return [lower[word] for word in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'window'?` where a known name is near, else the names that there are."""
    names = sorted(known)
    if near := near_names(name, names):
        return "did you mean " + " or ".join(repr(word) for word in near) + "?"
    return "known: " + ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")


def divisors_text(number: int, most: int = 8) -> str:
    """The divisors of `number`, for messages that say what a field could be: `1, 2, 3, 4, 6, …`."""
    found = [n for n in range(1, min(number, 4096) + 1) if number % n == 0]
    shown = ", ".join(str(n) for n in found[:most])
    return shown + (", …" if len(found) > most else "")
