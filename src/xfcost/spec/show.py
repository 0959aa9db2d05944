"""A spec as text: expanded, with every default, or as its files are written."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from xfcost.spec.load import lineage, load
from xfcost.spec.writer import spec_text

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
    if not parents and "set" not in own.data:
        return own.text
    loaded = load(name)
    extended = "".join(f" over {parent.shown}" for parent in parents)
    comments = [f"Expanded: {own.shown}{extended}. As written, with comments: --file"]
    return spec_text(_ordered(_without_empty(loaded.data, loaded.spec)), comments)


def full_yaml(name: str) -> str:
    """The spec as one YAML text: `extends` and `set` applied, every default written out."""
    spec = load(name).spec
    return spec_text(_ordered(_without_empty(msgspec.to_builtins(spec), spec)))


def _ordered(data: dict[str, Any]) -> dict[str, Any]:
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
