"""Validation errors in plain words: where in the file, what was expected, what was given, how to mend it."""

from __future__ import annotations

import re
from typing import Any, Final

from xfcost.ledger.errors import SpecError, nearest
from xfcost.spec.kinds import split_path
from xfcost.spec.meanings import clause
from xfcost.spec.reader import Source, YamlPath, shown_value
from xfcost.spec.schema import known_keys, known_kinds, meaning_at

_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def spec_error(message: str, data: dict[str, Any], source: Source, base: YamlPath = ()) -> SpecError:
    """The validator's message as a SpecError at its place in the file, with near names where a name is wrong.

    Args:
        message: the validator's, about the part of `data` at `base`.
        data: the whole spec.
        source: the lines of the whole spec.
        base: the path of the part that was validated.
    """
    text, inner_path = split_path(message)
    path = (*base, *path_of(inner_path))
    if match := re.search(r"unknown field `(.*)`", text, re.DOTALL):
        key = match[1]
        return source.error((*path, key), f"unknown key {shown_value(key)}; {nearest(key, known_keys(data, path))}")
    if match := re.search(r"missing required field `(.*)`", text):
        return source.error(path, _missing(match[1], data, path))
    value = value_at(data, path)
    if path and path[-1] == "kind":
        return source.error(path, f"unknown kind {shown_value(value)}; {nearest(str(value), known_kinds(path))}")
    if "Invalid enum value" in text:
        return source.error(path, f"got {shown_value(value)}; {nearest(str(value), known_keys(data, path))}")
    return source.error(path, f"{expected(text, value)}, got {shown_value(value)}{_meaning(data, path)}")


def _meaning(data: dict[str, Any], path: YamlPath) -> str:
    """The meaning of the field at `path`, in parentheses; nothing of an unknown key."""
    meaning = meaning_at(data, path)
    return f" ({clause(meaning)})" if meaning else ""


def _missing(key: str, data: dict[str, Any], path: YamlPath) -> str:
    if key == "kind":
        return f"the key 'kind' is missing: what is it? {nearest('', known_kinds((*path, 'kind')))}"
    near = nearest(key, value_at(data, path) or {}) if path else ""
    hint = f" ({near})" if near.startswith("did you mean") else _meaning(data, (*path, key))
    return f"the key '{key}' is missing{hint}"


def expected(text: str, value: Any) -> str:
    """What was expected, in plain words: `Expected int, got str` -> "expected a whole number", with its bounds."""
    match = re.match(r"Expected `([^`]+)`(.*)", text.partition(", got `")[0], re.DOTALL)
    if not match:
        return "expected a number of a sensible size" if "out of range" in text else text[0].lower() + text[1:]
    kinds, limit = match[1].split(" | "), match[2]
    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds if kind != "null")
    if "regex" in limit:
        one_line = "x00" in limit
        return "expected one line of plain text" if one_line else "expected a word of letters, digits and _"
    if kinds[0] == "str" and not limit and isinstance(value, int | float):
        return "expected text (put it in quotes)"
    for sign, word in ((">= ", "at least "), ("<= ", "at most "), ("> ", "more than "), ("< ", "less than ")):
        if sign in limit:
            number = limit.partition(sign)[2]
            sized = ("character" if kinds[0] == "str" else "item") + ("" if number == "1" else "s")
            return f"expected {wanted} " + (
                f"of {word}{number} {sized}" if "length" in limit else f"of {word}{_number(number)}"
            )
    return f"expected {wanted}"


def _number(text: str) -> str:
    value = float(text)
    return f"{int(value):,}" if value.is_integer() and value < 1e15 else text  # noqa: PLR2004 - longer is no help


def path_of(text: str) -> YamlPath:
    """`.stages[1].block[0].heads` -> ("stages", 1, "block", 0, "heads")."""
    return tuple(int(number) if number else word for word, number in re.findall(r"\.([^.\[]+)|\[(\d+)\]", text))


def value_at(data: Any, path: YamlPath) -> Any:
    """The value at `path`, or None."""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data
