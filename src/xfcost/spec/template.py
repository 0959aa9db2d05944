"""A preset -> a YAML text to start from: every key with what it means, those that it leaves to their defaults too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from xfcost.spec.load import load
from xfcost.spec.schema import meanings
from xfcost.spec.show import flow, ordered_keys

# Keys of the preset alone.
_OF_THE_PRESET: Final = ("paper", "notes", "published", "survey")
_SOURCE: Final = re.compile(r" \([^()]*\b(?:19|20)\d\d\b[^()]*\)")
# Where comments begin, behind a key and its value.
_COMMENTS: Final = 44


def template(preset: str, file: str, name: str) -> str:
    """The spec of a preset under another `name`, every key with its meaning; it is valid, and costs the same.

    Args:
        preset: the preset, or a path.
        file: how the file will be called, for the commands in its first lines.
        name: the name of the architecture.

    Raises:
        XfcostError: there is no such preset.
    """
    loaded = load(preset)
    kept = {key: value for key, value in loaded.data.items() if key not in _OF_THE_PRESET}
    lines = [
        f"# {name}: a spec to start from, made of the preset {preset}. A line that begins with # is a default.",
        f"#   xfcost check {file}      is it valid?",
        f"#   xfcost analyze {file}    what does it cost?",
        "# All kinds and keys: `xfcost schema` (for editors), and the documentation's page on specs.",
        *_mapping(ordered_keys(kept | {"name": name}), loaded.spec, "", set()),
    ]
    return "\n".join(lines) + "\n"


def _mapping(data: dict[str, Any], struct: msgspec.Struct, indent: str, said: set[type]) -> Iterator[str]:
    """The keys of a mapping that was read as a struct, then those that it leaves out; of each struct explained once."""
    new = type(struct) not in said
    said.add(type(struct))
    meaning = meanings(type(struct)) if new else {}
    for key, value in data.items():
        what, inner = meaning.get(key), getattr(struct, key, None)
        if isinstance(value, dict) and isinstance(inner, msgspec.Struct):
            yield _line(f"{indent}{key}:", what)
            yield from _mapping(value, inner, f"{indent}  ", said)
        elif isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
            yield _line(f"{indent}{key}:", what)
            yield from _items(value, inner, f"{indent}  ", said)
        else:
            yield _line(f"{indent}{key}: {flow(value)}", what)
    for field in msgspec.structs.fields(type(struct)) if new else ():
        left_out = field.encode_name not in data and field.encode_name not in _OF_THE_PRESET
        if left_out and isinstance(field.default, str | int | float):  # null and nothing show no value to write
            yield _line(f"{indent}# {field.encode_name}: {flow(field.default)}", meaning.get(field.encode_name))


def _items(values: list[Any], inner: Any, indent: str, said: set[type]) -> Iterator[str]:
    """A list; `inner` is what it was read as."""
    read = inner if isinstance(inner, list | tuple) and len(inner) == len(values) else [None] * len(values)
    for value, one in zip(values, read, strict=True):
        deeper = f"{indent}  "
        if isinstance(value, dict) and isinstance(one, msgspec.Struct):
            lines = _mapping(value, one, deeper, said)
        elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
            lines = _items(value, one, deeper, said)
        else:
            lines = iter([f"{deeper}{flow(value)}"])
        yield f"{indent}- {next(lines)[len(deeper) :]}"
        yield from lines


def _line(text: str, meaning: str | None) -> str:
    """A key with the first clause of what it means, without its sources."""
    if not meaning:
        return text
    what = re.split(r";|(?<!\bal)\. ", _SOURCE.sub("", meaning), maxsplit=1)[0].removesuffix(".")
    return f"{text:<{_COMMENTS}} # {what}"
