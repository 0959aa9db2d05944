"""What the schema finds wrong, in a user's words: where it stands, what was expected, what came, how to mend."""

from __future__ import annotations

import re
from typing import Any, Final

from xfcost.ledger.errors import SpecError, nearest
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


def explained(message: str, data: dict[str, Any], source: Source, base: YamlPath = ()) -> SpecError:
    """The validator's message as a SpecError at its place in the file, with near names where a name is wrong.

    Args:
        message: of what stands at `base` in `data`.
        data: the whole spec.
        source: the lines of the whole spec.
        base: the part that was validated.
    """
    text, _, place = (
        message.rpartition(" - at `$") if message.endswith("`") and " - at `$" in message else (message, "", "")
    )
    path = (*base, *path_of(place.rstrip("`")))
    if found := re.search(r"unknown field `(.*)`", text, re.DOTALL):
        key = found.group(1)
        return source.error((*path, key), f"unknown key {shown_value(key)}; {nearest(key, known_keys(data, path))}")
    if found := re.search(r"missing required field `(.*)`", text):
        return source.error(path, _missing(found.group(1), data, path))
    value = value_at(data, path)
    if path and path[-1] == "kind":
        return source.error(path, f"unknown kind {shown_value(value)}; {nearest(str(value), known_kinds(path))}")
    if "Invalid enum value" in text:
        return source.error(path, f"got {shown_value(value)}; {nearest(str(value), known_keys(data, path))}")
    return source.error(path, f"{expected(text, value)}, got {shown_value(value)}{_meaning(data, path)}")


def _meaning(data: dict[str, Any], path: YamlPath) -> str:
    """What the field at `path` is, in parentheses; nothing where it has no meaning of its own (an unknown key)."""
    meaning = meaning_at(data, path)
    return f" ({clause(meaning)})" if meaning else ""


def _missing(key: str, data: dict[str, Any], path: YamlPath) -> str:
    if key == "kind":
        return f"the key 'kind' is missing: what is it? {nearest('', known_kinds((*path, 'kind')))}"
    near = nearest(key, value_at(data, path) or {}) if path else ""
    more = f" ({near})" if near.startswith("did you mean") else _meaning(data, (*path, key))
    return f"the key '{key}' is missing{more}"


def expected(text: str, value: Any) -> str:
    """The validator's words in a user's: `Expected int, got str` -> "expected a whole number", with its bounds."""
    found = re.match(r"Expected `([^`]+)`(.*)", text.partition(", got `")[0], re.DOTALL)
    if not found:
        return "expected a number of a sensible size" if "out of range" in text else text[0].lower() + text[1:]
    kinds, limit = found.group(1).split(" | "), found.group(2)
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
    """What stands at `path`, or None."""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data
