"""Regular expressions of files that others wrote: what is wrong with one, and how long a match may take.

No clock decides that. With each repeat without an end, a match of n characters can end at n places, so k repeats in a
row give up to C(n+k, k) ways to try. A repeat of what itself varies has exponentially many, and is refused.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from functools import lru_cache
from math import comb
from typing import Any, Final, NamedTuple

# Characters of a module's name, of a pattern, and ways to match it.
_LONGEST_NAME: Final = 64
_LONGEST_PATTERN: Final = 2000
_MOST_WAYS: Final = 10**6

# `sre_parse` before Python 3.11.
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


class _Ways(NamedTuple):
    """Ways to match a part of a pattern."""

    repeats: int = 0
    """Repeats without an end, one after another."""
    factor: int = 1
    """Ways of all else."""

    def then(self, other: _Ways) -> _Ways:
        return _Ways(self.repeats + other.repeats, self.factor * other.factor)

    @property
    def total(self) -> int:
        return comb(_LONGEST_NAME + self.repeats, self.repeats) * self.factor


class _TooManyError(Exception):
    """A repeat of what itself varies."""


@lru_cache(maxsize=4096)
def wrong_pattern(pattern: str) -> str | None:
    """What is wrong with a regular expression that matches names of modules; None: nothing."""
    if len(pattern) > _LONGEST_PATTERN:
        return f"it has {len(pattern):,} characters; expected at most {_LONGEST_PATTERN:,}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
            ways = _of_all(_parser.parse(pattern))
    except re.error as error:
        return f"it is no regular expression: {error}"
    except (OverflowError, RecursionError):
        return "it is no regular expression: too deep, or a number in it is too large"
    except _TooManyError:
        return "it repeats a part that has a repeat or a choice of its own, so a match may never end; write it without"
    if ways.total > _MOST_WAYS:
        return "it has so many repeats that a match may never end; expected at most four, such as .*"
    return None


def _of_all(parts: Any) -> _Ways:
    found = _Ways()
    for operator, argument in parts:
        found = found.then(_of(str(operator), argument))
    return found


def _of(operator: str, argument: Any) -> _Ways:  # the names are those of `re._constants`
    match operator:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _of_repeat(*argument)
        case "SUBPATTERN" | "ASSERT" | "ASSERT_NOT":
            return _of_all(argument[-1])
        case "ATOMIC_GROUP":
            return _of_all(argument)
        case "BRANCH":
            return _of_choice(argument[1])
        case "GROUPREF_EXISTS":
            return _of_choice([one for one in argument[1:] if one is not None])
    return _Ways()


def _of_choice(choices: Any) -> _Ways:
    found = [_of_all(one) for one in choices]
    firsts = [str(one[0]) if len(one) and str(one[0][0]) == "LITERAL" else None for one in choices]
    apart = None not in firsts and len(set(firsts)) == len(firsts)
    factors = [one.factor for one in found]
    return _Ways(max(one.repeats for one in found), max(factors) if apart else sum(factors))


def _of_repeat(least: int, most: int, body: Any) -> _Ways:
    once, most = _of_all(body), min(int(most), _LONGEST_NAME)
    if once == _Ways():
        return _Ways(1) if most == _LONGEST_NAME else _Ways(0, most - min(int(least), most) + 1)
    if most > 1:
        raise _TooManyError
    return once._replace(factor=once.factor + 1)
