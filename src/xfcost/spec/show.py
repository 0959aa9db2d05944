"""A spec as readable YAML, with or without every default, or as its files are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from textwrap import wrap
from typing import Any, Final

import msgspec

from xfcost.ledger.visible import visible
from xfcost.spec.load import lineage, load

WIDTH: Final = 120
# Keys whose values always get lines of their own.
_MULTILINE: Final = frozenset({"stages", "encoder", "decoder", "blocks", "pattern"})
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\Z")
# Outside brackets a comma, a colon before a letter and a space between words need no quotes.
_PLAIN_LINE: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_./(),;&'+-]|:(?=[A-Za-z0-9])| (?=[^ #]))*\Z")
_WRAPPED: Final = re.compile(r"[^\s](?:[^\s]| (?=[^ ]))*\Z")
_MILLION: Final = 1e6
# Words that YAML 1.1 or 1.2 reads as something other than text.
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"})


def spec_text(data: dict[str, Any], comments: Sequence[str] = ()) -> str:
    """The YAML of a spec, under its comments."""
    lines = [line for comment in comments for line in _wrapped(comment, WIDTH - 2)]
    return "".join(f"# {line}\n" for line in lines) + "\n".join(_mapping(data, "")) + "\n"


def _mapping(data: dict[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        head = f"{indent}{key}:"
        if isinstance(value, str) and len(value) > WIDTH and _WRAPPED.match(value) and visible(value) == value:
            yield f"{head} >-"
            yield from (f"{indent}  {line}" for line in _wrapped(value, WIDTH - 2 - len(indent)))
        elif isinstance(value, str):
            yield f"{head} {_text(value, _PLAIN_LINE)}"
        elif not isinstance(value, dict | list) or _fits(f"{head} {flow(value)}", key, value):
            yield f"{head} {flow(value)}"
        elif isinstance(value, dict):
            yield head
            yield from _mapping(value, f"{indent}  ")
        else:
            yield head
            yield from _items(value, f"{indent}  ")


def _items(values: list[Any], indent: str) -> Iterator[str]:
    """A list, each item on one line or on several; a component gets one, and a group of blocks where it fits."""
    for value in values:
        line = f"{indent}- {flow(value)}"
        short = isinstance(value, list) and _fits(line, "", value)
        component = isinstance(value, dict) and "kind" in value
        group = isinstance(value, dict) and "repeat" in value and len(line) <= WIDTH
        if not isinstance(value, dict | list) or component or short or group:
            yield line
            continue
        inner = _mapping(value, f"{indent}  ") if isinstance(value, dict) else _items(value, f"{indent}  ")
        for number, text in enumerate(inner):
            yield f"{indent}- {text[len(indent) + 2 :]}" if number == 0 else text


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of whole words."""
    return wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _fits(line: str, key: str, value: Any) -> bool:
    return len(line) <= WIDTH and key not in _MULTILINE and not _has_multiline(value)


def _has_multiline(value: Any) -> bool:
    if isinstance(value, dict):
        return any(key in _MULTILINE or _has_multiline(item) for key, item in value.items())
    return isinstance(value, list) and any(_has_multiline(item) for item in value)


def flow(value: Any) -> str:
    """The value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _text(value, _PLAIN) if isinstance(value, str) else _number(value)


def _text(text: str, plain: re.Pattern[str]) -> str:
    if plain.match(text) and text.lower() not in _WORDS:
        return text
    return visible(json.dumps(text, ensure_ascii=False))  # control characters as YAML escapes


def _number(value: float) -> str:
    """Readable by every YAML version (1.0e-6, not 1e-06) and as papers print it (7.6e+9, not 7600000000.0)."""
    text = repr(value)
    if isinstance(value, float) and abs(value) >= _MILLION:
        short = Decimal(text).normalize().to_eng_string().lower()
        text = short if "e" in short else text
    digits, e, power = text.partition("e")
    if not e:
        return text
    sign = "-" if power.startswith("-") else "+"
    return f"{digits if '.' in digits else f'{digits}.0'}e{sign}{power.lstrip('+-').lstrip('0')}"


# The order in which the presets are written: description, input, layers, head, what is published of it.
_ORDER: Final = (
    "name", "paper", "notes", "input", "residual", "embed", "stages", "encoder", "decoder", "head", "published",
    "survey",
)  # fmt: skip


def expanded_yaml(name: str) -> str:
    """The spec as one YAML text: `extends` and `set` applied, defaults left out.

    A file that has neither is shown as written.
    """
    own, *parents = lineage(name)
    if not parents and "set" not in own.data and not own.source.read_as:
        return own.text
    loaded = load(name)
    extended = "".join(f" over {parent.shown}" for parent in parents)
    comments = [f"Expanded: {own.shown}{extended}. As written, with comments: --file"]
    comments += [f"{own.shown}: {own.source.read_as}"] if own.source.read_as else []
    return spec_text(ordered_keys(_without_empty(loaded.data, loaded.spec)), comments)


def full_yaml(name: str) -> str:
    """The spec as one YAML text: `extends` and `set` applied, every default written out."""
    spec = load(name).spec
    return spec_text(ordered_keys(_without_empty(msgspec.to_builtins(spec), spec)))


def ordered_keys(data: dict[str, Any]) -> dict[str, Any]:
    """`data` in the order in which presets are written, without what makes a spec of another."""
    keys = [key for key in data if key not in ("extends", "set")]
    return {key: data[key] for key in sorted(keys, key=_ORDER.index)}


def _without_empty(data: Any, value: Any) -> Any:
    """`data` without nulls and empty lists where these are the defaults; `value` is the struct that it was read as."""
    if isinstance(data, list):
        return [_without_empty(*pair) for pair in zip(data, value, strict=True)]
    if not isinstance(value, msgspec.Struct):
        return data
    empty = _empty(type(value))
    return {
        key: _without_empty(item, getattr(value, key, item))
        for key, item in data.items()
        if key not in empty or item != empty[key]
    }


@cache
def _empty(struct: type[msgspec.Struct]) -> dict[str, list[Any] | None]:
    """Field -> its default, of the fields that are null or an empty list by default."""
    return {
        field.name: None if field.default is None else []
        for field in msgspec.structs.fields(struct)
        if field.default is None or field.default_factory is list
    }
