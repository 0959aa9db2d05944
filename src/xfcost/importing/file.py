"""A config.json as it is written: its fields, and the line of each. It is data, and it can't be a bomb."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import SpecError, printable
from xfcost.spec.reader import Expected, read_file

# The names of 21,841 classes, written twice, are two megabytes.
_CONFIG: Final = Expected(
    what="a config.json of transformers",
    missing="`xfcost import` reads a local file and fetches none",
    large="a config is a page of JSON",
    most_bytes=16_000_000,
)
_MOST_DIGITS: Final = 40
_WHITE: Final = re.compile(r"[ \t\n\r]*")


class ConfigFile(NamedTuple):
    """What a config.json says, and where."""

    name: str
    """The file as the user wrote it."""
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def error(self, field: str, message: str) -> SpecError:
        """The error `config.json:12 hidden_size: message`; without a line where the file doesn't write the field."""
        line = f":{self.lines[field]}" if field in self.lines else ""
        return SpecError(f"{self.name}{line} {printable(field)}: {message}")


def read_config(path: Path, name: str) -> ConfigFile:
    """The fields of the config at `path`, which messages call `name`.

    Raises:
        SpecError: it can't be read, is no JSON, or not one object; or a field stands twice or holds no plain value.
    """
    if path.is_dir() and (path / "config.json").is_file():
        raise SpecError(f"{name}: is a directory; expected {_CONFIG.what}: {name.rstrip('/')}/config.json")
    text = read_file(path, name, _CONFIG)
    _check_syntax(text, name)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, line, value in _fields(text, name):
        if key in values:
            raise SpecError(
                f"{name}:{line} {printable(key)}: the field stands twice (first at line {lines[key]}); keep one"
            )
        values[key], lines[key] = value, line
    return ConfigFile(name, values, lines)


def _check_syntax(text: str, name: str) -> None:
    if not text.strip():
        raise SpecError(f"{name}:1 is empty; expected {_CONFIG.what}")
    try:
        found = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).decode(text)
    except json.JSONDecodeError as error:
        said = error.msg[:1].lower() + error.msg[1:]
        raise SpecError(f"{name}:{error.lineno}:{error.colno} is not valid JSON: {said}") from None
    except RecursionError:
        raise SpecError(f"{name}: is nested too deeply to be {_CONFIG.what}") from None
    if not isinstance(found, dict):
        kind = "a list" if isinstance(found, list) else "a single value"
        raise SpecError(f"{name}:1 {kind} at top level; expected the object of {_CONFIG.what}")


class _NotPlainError(Exception):
    """A value that is no plain data, and why."""


def _fields(text: str, name: str) -> Iterator[tuple[str, int, Any]]:
    """The top level's keys, lines and values; `text` is known to be one object."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_whole)
    at = _behind_white(text, 0) + 1
    line, counted = 1, 0
    while text[at := _behind_white(text, at)] != "}":
        at = _behind_white(text, at + 1) if text[at] == "," else at
        line, counted = line + text.count("\n", counted, at), at
        key, at = decoder.raw_decode(text, at)
        at = _behind_white(text, at) + 1  # the colon
        try:
            value, at = decoder.raw_decode(text, _behind_white(text, at))
        except _NotPlainError as error:
            raise SpecError(f"{name}:{line} {printable(key)}: {error}") from None
        yield key, line, value


def _behind_white(text: str, at: int) -> int:
    found = _WHITE.match(text, at)
    return found.end() if found else at


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _NotPlainError(f"the key {printable(twice)!r} stands twice in it; keep one of them")
    return result


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise _NotPlainError(f"a number of {len(text):,} digits is too large")
    return int(text)


def is_finite(value: Any) -> bool:
    """Is every number in the value one? NaN and Infinity are read, as Python writes them into JSON, and none."""
    if isinstance(value, dict | list):
        return all(is_finite(item) for item in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
