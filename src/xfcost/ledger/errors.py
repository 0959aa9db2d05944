"""All errors that a user can cause.

XfcostError            exit code 2, one message, no traceback
├── SpecError          an invalid spec: file:line, path, what was expected, how to fix it
├── UsageError         an invalid option or argument of the command line or of the Python API
│   ├── NotFetchedError a model on the Hub, which the caller did not allow to fetch
│   ├── AbsentError    a file that a git revision does not have
│   ├── SizeError      a size at which a module does not run
│   └── NoNumbersError a module that is too large to be run on real numbers
├── OutputError        a file can't be written
├── IncompleteError    operations of a module that nothing counts, with `strict`; exit code 1
├── VersionError       a library in a version that can't be used, or two that don't fit each other
└── DeviceError        a device is absent, or the model doesn't fit on it

`ComponentError` is internal: a component raises it with its field's name, and the loader adds file and line in a
SpecError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

# A message lists this many names, then "…".
MOST_NAMES: Final = 16
# A message lists this many errors of a spec, then the number of the others.
MOST_ERRORS: Final = 20


class XfcostError(Exception):
    """Base of all errors that are caught once, in `cli.py`, and printed without a traceback."""

    exit_code = 2


class SpecError(XfcostError):
    """A spec that can't be read or built.

    Args:
        message: what is wrong, with file and line.
        location: file and line, if it has one.
        path: the path in the spec.
        parts: the errors that this one combines.
        option: the option in its message that mends it.
    """

    def __init__(
        self,
        message: str,
        location: tuple[str, int] | None = None,
        path: tuple[str | int, ...] = (),
        parts: tuple[SpecError, ...] = (),
        option: str = "",
    ) -> None:
        super().__init__(message)
        self.location = location
        self.path = path
        self.parts = parts or (self,)
        self.option = option
        self.mend = ""
        """What helps with all of them, as a last line on the terminal."""


def combined(errors: Iterable[SpecError]) -> SpecError:
    """Several errors of a spec as one, without duplicates, by file and line."""
    parts = {str(part): part for error in errors for part in error.parts}
    if len(parts) == 1:
        return next(iter(parts.values()))
    files = list(dict.fromkeys(part.location[0] for part in parts.values() if part.location))

    def order(error: SpecError) -> tuple[int, int]:
        return (files.index(error.location[0]), error.location[1]) if error.location else (-1, 0)

    ordered = sorted(parts.values(), key=order)
    return SpecError(combined_message([str(part) for part in ordered]), ordered[0].location, parts=tuple(ordered))


def combined_message(messages: Sequence[str]) -> str:
    """Several messages as one, a line for each; a single message is unchanged."""
    if len(messages) == 1:
        return messages[0]
    more = [f"… and {len(messages) - MOST_ERRORS:,} more"] if len(messages) > MOST_ERRORS else []
    return "\n  ".join([f"{len(messages):,} errors:", *messages[:MOST_ERRORS], *more])


class UsageError(XfcostError):
    """An invalid option or argument."""


class NotFetchedError(UsageError):
    """A model on the Hub that is not on the disk, and that the caller did not allow to fetch."""


class StreamsError(UsageError):
    """More numbers of tokens than a system has streams of them."""


class AbsentError(UsageError):
    """A file that a git revision does not have."""


class SizeError(UsageError):
    """A size of the input at which a module does not run."""


class NoNumbersError(UsageError):
    """A module that can't be run on real numbers, and so its mixing kinds can't be found."""


class OutputError(XfcostError):
    """A file that can't be written; no part of it remains."""


class VersionError(XfcostError):
    """A library in a version that can't be used, or two libraries that don't fit each other."""


class DeviceError(XfcostError):
    """A device that is absent, or a model that doesn't fit on it."""


class NoRoomError(DeviceError):
    """A model that needs more memory than a limit leaves.

    Args:
        message: what needs it, and the limit.
        needed: the bytes that it needs.
        left: the bytes that are left.
    """

    def __init__(self, message: str, needed: int, left: int) -> None:
        super().__init__(message)
        self.needed = needed
        self.left = left


class IncompleteError(XfcostError):
    """Operations of a module without a formula.

    Args:
        name: the module's name.
        uncounted: the operations, with how often they ran.
    """

    exit_code = 1

    def __init__(self, name: str, uncounted: Mapping[str, int]) -> None:
        names = ", ".join(f"{operation} ({times}×)" for operation, times in uncounted.items())
        first = next(iter(uncounted))
        super().__init__(
            f"{name}: not counted, because no formula is known: {names}; totals would be lower bounds "
            f'(count it yourself: @xfcost.register("{first}"))'
        )
        self.uncounted = dict(uncounted)


class ComponentError(Exception):
    """An invalid field of a component at a place in an architecture.

    Args:
        field: the field.
        message: what is wrong with it.
        fits: the least number there that would fit the input.
    """

    def __init__(self, field: str, message: str, fits: int | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.message = message
        self.fits = fits


def printable(text: str, most: int = 60) -> str:
    """`text` for a message: on one line, shortened, without control characters."""
    plain = text if text.isprintable() else repr(text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


KIND_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_KINDS: Final = re.compile(rf"`((?:{'|'.join(KIND_WORDS)})(?: \| \w+)*)`")


def validation_text(error: Exception, most: int = 120) -> str:
    """The message of a validator for a user: `Expected int, got str` -> "Expected a whole number, got text"."""
    words = lambda kinds: " or ".join(KIND_WORDS.get(one, one) for one in kinds[1].split(" | "))  # noqa: E731 - one line
    return printable(_KINDS.sub(words, str(error)), most)


def shown(given: object, most: int = 60) -> str:
    """An option's value for a message: on one line, shortened."""
    try:
        return printable(str(given), most)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"(a number of thousands of digits, in a value of type {type(given).__name__})"


def near_names(name: str, known: Iterable[str], similar: float = 0.6) -> list[str]:
    """Known names at least so `similar` to `name`, the nearest first."""
    lower = {word.lower(): word for word in sorted(known, reverse=True)}
    import difflib  # only bad input needs it

    return [lower[word] for word in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=similar)]


def any_of(words: Sequence[str]) -> str:
    """`table, json or csv`."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def did_you_mean(near: Iterable[str]) -> str:
    """`did you mean 'window' or 'axial'?`."""
    return f"did you mean {' or '.join(map(repr, near))}?"


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'window'?` if a known name is similar, else `expected one of …`."""
    names = sorted(known)
    if near := near_names(name, names):
        return did_you_mean(near)
    return "expected one of " + ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")


def divisors_text(number: int, most: int = 8) -> str:
    """The divisors of `number`, for messages: `1, 2, 3, 4, 6, …`."""
    divisors = [n for n in range(1, min(number, 4096) + 1) if number % n == 0]
    return ", ".join(str(n) for n in divisors[:most]) + (", …" if len(divisors) > most else "")
