"""Reads a config.json: its fields with their lines. Sizes and depths are limited."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import SpecError, printable
from xfcost.spec.files import Expected, read_file

# The names of 21,841 classes, twice, are two megabytes.
_CONFIG: Final = Expected(
    what="a config.json of transformers",
    missing="`xfcost import` reads a local file and fetches none",
    large="a config is a page of JSON",
    most_bytes=16_000_000,
)
_MAX_DIGITS: Final = 40
_WHITESPACE: Final = re.compile(r"[ \t\n\r]*")


class ConfigFile(NamedTuple):
    """The fields of a config.json and their lines."""

    name: str
    """The path as the user gave it."""
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def error(self, field: str, message: str) -> SpecError:
        """The error `config.json:12 hidden_size: message`; without a line if the file doesn't have the field."""
        line = f":{self.lines[field]}" if field in self.lines else ""
        return SpecError(f"{self.name}{line} {printable(field)}: {message}")


def read_config(path: Path, name: str) -> ConfigFile:
    """The fields of the config at `path`; messages call it `name`.

    Raises:
        SpecError: the file can't be read or is not one JSON object; or a field is a duplicate or has no plain value.
    """
    if path.is_dir() and (path / "config.json").is_file():
        raise SpecError(f"{name}: is a directory; expected {_CONFIG.what}: {name.rstrip('/')}/config.json")
    text = read_file(path, name, _CONFIG)
    _check_syntax(text, name)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, line, value in _fields(text, name):
        if key in values:
            raise SpecError(f"{name}:{line} {printable(key)}: duplicate field (first at line {lines[key]}); keep one")
        values[key], lines[key] = value, line
    return ConfigFile(name, values, lines)


def _check_syntax(text: str, name: str) -> None:
    if not text.strip():
        raise SpecError(f"{name}:1 is empty; expected {_CONFIG.what}")
    try:
        content = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).decode(text)
    except json.JSONDecodeError as error:
        message = error.msg[:1].lower() + error.msg[1:]
        raise SpecError(f"{name}:{error.lineno}:{error.colno} is not valid JSON: {message}") from None
    except RecursionError:
        raise SpecError(f"{name}: is nested too deeply to be {_CONFIG.what}") from None
    if not isinstance(content, dict):
        kind = "a list" if isinstance(content, list) else "a single value"
        raise SpecError(f"{name}:1 {kind} at top level; expected the object of {_CONFIG.what}")


class _NotPlainError(Exception):
    """A value that is not plain data; the message says why."""


def _fields(text: str, name: str) -> Iterator[tuple[str, int, Any]]:
    """(key, line, value) of the top level; `text` must be one object."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_whole)
    position = _skip_whitespace(text, 0) + 1
    line, line_position = 1, 0
    while text[position := _skip_whitespace(text, position)] != "}":
        position = _skip_whitespace(text, position + 1) if text[position] == "," else position
        line, line_position = line + text.count("\n", line_position, position), position
        key, position = decoder.raw_decode(text, position)
        position = _skip_whitespace(text, position) + 1  # the colon
        try:
            value, position = decoder.raw_decode(text, _skip_whitespace(text, position))
        except _NotPlainError as error:
            raise SpecError(f"{name}:{line} {printable(key)}: {error}") from None
        yield key, line, value


def _skip_whitespace(text: str, position: int) -> int:
    match = _WHITESPACE.match(text, position)
    return match.end() if match else position


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise _NotPlainError(f"duplicate key {printable(duplicate)!r}; keep one of them")
    return result


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise _NotPlainError(f"a number of {len(text):,} digits is too large")
    return int(text)


def is_finite(value: Any) -> bool:
    """Are all numbers in the value finite? Python's JSON may have NaN and Infinity."""
    if isinstance(value, dict | list):
        return all(is_finite(item) for item in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
