"""A spec as text: expanded, with every default, or as its files are written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from xfcost.spec.load import lineage, load
from xfcost.spec.writer import spec_text

# How the presets are read: what it is, what goes in, what is done to it, what comes out, and what was published of it.
_ORDER: Final = (
    "name", "paper", "notes", "input", "residual", "embed", "stages", "encoder", "decoder", "head", "published",
)  # fmt: skip


def texts(name: str) -> Iterator[tuple[str, str]]:
    """(file name, YAML text) of a spec and of everything it extends, as they are written."""
    for written in lineage(name):
        yield written.shown, written.text


def expanded_yaml(name: str) -> str:
    """The spec as one YAML text: `extends` and `set` applied; what no file says stays out.

    A file that has neither is shown as it is written.
    """
    own, *parents = lineage(name)
    if not parents and "set" not in own.data:
        return own.text
    loaded = load(name)
    over = "".join(f" over {parent.shown}" for parent in parents)
    above = [f"Expanded: {own.shown}{over}. As written, with comments: --file"]
    return spec_text(_ordered(_without_empty(loaded.data, loaded.spec)), above)


def full_yaml(name: str) -> str:
    """The spec as one YAML text: `extends` and `set` applied, every default written out."""
    spec = load(name).spec
    return spec_text(_ordered(_without_empty(msgspec.to_builtins(spec), spec)))


def _ordered(data: dict[str, Any]) -> dict[str, Any]:
    kept = [key for key in data if key not in ("extends", "set")]
    return {key: data[key] for key in sorted(kept, key=_ORDER.index)}


def _without_empty(data: Any, value: Any) -> Any:
    """`data` without the nulls and empty lists that its fields have by default; `value` is what it was read as."""
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
    """The fields that are null or an empty list by default, and which of the two."""
    return {
        field.name: None if field.default is None else []
        for field in msgspec.structs.fields(struct)
        if field.default is None or field.default_factory is list
    }
