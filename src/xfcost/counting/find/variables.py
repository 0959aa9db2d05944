"""`--vary KEY=VALUES`: the keys of a spec that are varied, and the values of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.spec.overrides import assignments, has_each
from xfcost.spec.reader import YamlPath, path_text, read_value

_NUMBER: Final = r"-?\d+(?:\.\d+)?"
_RANGE: Final = re.compile(rf"({_NUMBER}):({_NUMBER})(?::({_NUMBER}))?", re.ASCII)
# A key with more values is a typing error.
MOST_VALUES: Final = 100_000
_EXAMPLE: Final = "as in --vary stages.0.dim=96,128 or --vary stages.2.depth=2:18:2"


# Keys of the run, of every system; and of the search, the name of a system.
RUN_KEYS: Final = ("N", "batch")
PRESET: Final = "preset"


class Variable(NamedTuple):
    """A key of a spec, as after `--set`, or of the run, and its values."""

    key: str
    values: tuple[Any, ...]


class Assigned(NamedTuple):
    """A variable in the data of a spec: the places that it sets, and what each value puts there."""

    number: int
    """Of the variable."""
    places: tuple[tuple[Any, str | int, YamlPath], ...]
    """`container[step]`, at a path."""
    values: tuple[tuple[Any, ...], ...]
    """Of every value, one item for each place."""


def read_variables(given: Sequence[str] | Mapping[str, Any]) -> tuple[Variable, ...]:
    """The variables of `stages.2.depth=2:18:2` texts, or of {"stages.2.depth": range(2, 20, 2)}.

    Raises:
        UsageError: one is no `key=values`, or has no values or too many; a key is given twice.
    """
    found: dict[str, Variable] = {}
    pairs: list[tuple[Any, Any]] = list(given.items()) if isinstance(given, Mapping) else []
    for text in () if isinstance(given, Mapping) else given:
        before, equals, after = text.partition("=")
        if not equals:
            raise UsageError(f"--vary {shown(text)}: expected key=values, {_EXAMPLE}")
        pairs.append((before, after))
    for name_given, values in pairs:
        key = str(name_given).strip()
        name = f"--vary {printable(key)}"
        if not key or key in found:
            raise UsageError(f"{name}: {'is given twice' if key else 'expected key=values'}; {_EXAMPLE}")
        listed = isinstance(values, Iterable) and not isinstance(values, Mapping)
        read = _values(values, name) if isinstance(values, str) else list(values) if listed else [values]
        different = tuple({repr(value): value for value in read}.values())
        if not different:
            raise UsageError(f"{name}: has no values; {_EXAMPLE}")
        found[key] = Variable(key, different)
    return tuple(found.values())


def _values(text: str, name: str) -> list[Any]:
    """`96,128` or `2:18:2`, or both together; a list in brackets is one value."""
    values: list[Any] = []
    for item in _items(text):
        if match := _RANGE.fullmatch(item):
            values += _range(match, name)
            continue
        try:
            values.append(read_value(item))
        except SpecError as error:
            raise UsageError(f"{name}={shown(item)}: {str(error).removeprefix('--set:1 ')}") from None
    return values


def _items(text: str) -> list[str]:
    """The items between commas outside of brackets and quotes."""
    items, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in "[{") - (letter in "]}") if not quote else 0
        if letter == "," and not depth and not quote:
            items.append("")
        else:
            items[-1] += letter
    return [item.strip() for item in items if item.strip()]


def _range(match: re.Match[str], name: str) -> list[Any]:
    """Every number from the first to the last, both included."""
    low, high, step = (Decimal(number or "1") for number in match.groups())
    if step <= 0 or high < low:
        raise UsageError(f"{name}={match[0]}: expected low:high:step with low ≤ high and a step above 0, {_EXAMPLE}")
    if (high - low) / step >= MOST_VALUES:
        raise UsageError(f"{name}={match[0]}: more than {MOST_VALUES:,} values; take a longer step")
    whole = all("." not in number for number in match.groups() if number)
    steps = int((high - low) / step)
    return [int(low + n * step) if whole else float(low + n * step) for n in range(steps + 1)]


def assigned(data: dict[str, Any], variables: Sequence[tuple[int, Variable]]) -> list[Assigned]:
    """The places of all variables in `data`; mappings on the way to a new key are added to it.

    Raises:
        UsageError: a key leads nowhere, or two lead to the same place.
    """
    found, owners = [], dict[YamlPath, str]()
    for number, variable in variables:
        paths, values = _put(data, variable)
        for path in paths:
            if owners.setdefault(path, variable.key) != variable.key:
                both = f"{printable(owners[path])} and --vary {printable(variable.key)}"
                raise UsageError(f"--vary {both}: both set {path_text(path)}; give one of them")
        places = []
        for path in paths:
            container: Any = data
            for step in path[:-1]:
                container = container[step]
            places.append((container, path[-1], path))
        found.append(Assigned(number, tuple(places), values))
    return found


def is_structural(data: dict[str, Any], variable: Variable) -> bool:
    """Does one of its values put a mapping or a list into the spec, which changes what other keys there are?"""
    return any(isinstance(item, dict | list) for items in _put(data, variable)[1] for item in items)


def _put(data: dict[str, Any], variable: Variable) -> tuple[tuple[YamlPath, ...], tuple[tuple[Any, ...], ...]]:
    """The paths that a variable sets, and what each of its values puts there: the same, unless its key has `each`."""
    try:
        paths = tuple(assignments(data, variable.key, variable.values[0]))
        if has_each(variable.key):
            return paths, tuple(tuple(assignments(data, variable.key, one).values()) for one in variable.values)
    except UsageError as error:
        raise UsageError(f"--vary {printable(variable.key)}: {error}") from None
    return paths, tuple((value,) * len(paths) for value in variable.values)
