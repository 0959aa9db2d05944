"""`--vary KEY=VALUES`: the keys of a spec that are varied, and the values of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.spec.grammar import Spec, converted
from xfcost.spec.grammar_errors import spec_error
from xfcost.spec.load import Loaded
from xfcost.spec.overrides import assignments, has_each
from xfcost.spec.reader import YamlPath, path_text, read_value, value_at

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


_WITHOUT_COSTS: Final = ("name", "paper", "notes", "published", "survey")


class VariedSpec:
    """A spec with other values of some keys, one configuration after another.

    Args:
        loaded: the spec.
        structural: the keys whose values are lists or mappings, which change what other keys there are: these values
            are written first, once.
        others: the other keys, with any of their values; their places are looked up once.

    Raises:
        UsageError: a key leads nowhere, or to no cost, or two to the same place.
    """

    def __init__(self, loaded: Loaded, structural: Mapping[str, Any], others: Mapping[str, Any]) -> None:
        self._loaded, self._data = loaded, _copied(loaded.data)
        self._places: dict[str, list[tuple[Any, str | int]]] = {}
        owners: dict[YamlPath, str] = {}
        for key, value in {**structural, **others}.items():
            found = _assignments(self._data, key, _copied(value))
            for path in found:
                if path[0] in _WITHOUT_COSTS:
                    raise UsageError(f"--vary: no cost depends on {path_text(path)}; leave it out")
                if owners.setdefault(path, key) != key:
                    both = f"{printable(owners[path])} and --vary {printable(key)}"
                    raise UsageError(f"--vary {both}: both set {path_text(path)}; give one of them")
            places = [(value_at(self._data, path[:-1]), path[-1]) for path in found]
            if key in structural:
                _write(places, found.values())
            else:
                self._places[key] = places

    def at(self, values: Mapping[str, Any]) -> Loaded:
        """The spec with these values of the other keys.

        Raises:
            XfcostError: there is no such spec.
        """
        for key, places in self._places.items():
            value = values[key]
            of_each = isinstance(value, list)
            _write(places, _assignments(self._data, key, value).values() if of_each else repeat(value, len(places)))
        try:
            spec = converted(self._data, Spec)
        except msgspec.ValidationError as error:
            raise spec_error(str(error), self._data, self._loaded.source) from None
        return msgspec.structs.replace(self._loaded, spec=spec, data=self._data)


def _write(places: Iterable[tuple[Any, str | int]], values: Iterable[Any]) -> None:
    for (container, step), value in zip(places, values, strict=True):
        container[step] = value


def is_structural(loaded: Loaded, variable: Variable) -> bool:
    """Does one of its values put a mapping or a list into the spec, which changes what other keys there are?

    Raises:
        UsageError: the key leads nowhere.
    """
    data, values = _copied(loaded.data), variable.values
    if has_each(variable.key):
        values = tuple(item for one in values for item in _assignments(data, variable.key, one).values())
    else:
        _assignments(data, variable.key, values[0])
    return any(isinstance(value, dict | list) for value in values)


def _assignments(data: dict[str, Any], key: str, value: Any) -> dict[YamlPath, Any]:
    try:
        return assignments(data, key, value)
    except UsageError as error:
        raise UsageError(f"--vary {printable(key)}: {error}") from None


def _copied(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))
