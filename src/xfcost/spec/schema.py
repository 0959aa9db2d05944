"""What the grammar knows: its JSON Schema, and the names that an error can suggest."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import msgspec

from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.mechanisms import MECHANISMS
from xfcost.mechanisms.base import Residual, tag_of
from xfcost.spec.grammar import Group, ImageInput, Published, Spec, StageSpec, StreamSpec, TokenInput
from xfcost.spec.reader import YamlPath

_DOORS: dict[str, tuple[type, ...]] = {
    "embed": EMBEDS,
    "enter": ENTERS,
    "head": HEADS,
    "input": (ImageInput, TokenInput),
}
_PLAIN: dict[str, type] = {
    "stages": StageSpec,
    "published": Published,
    "encoder": StreamSpec,
    "decoder": StreamSpec,
    "blocks": Group,
    "residual": Residual,
}
_BLOCKS: tuple[type, ...] = (*MECHANISMS, *SUBLAYERS)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file, for editors."""
    schema = msgspec.json.schema(Spec)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "xfcost spec"} | schema


def known_kinds(path: YamlPath) -> list[str]:
    """The kinds that may stand at `path` (which ends in "kind")."""
    return [tag_of(page) for page in _pages(path)]


def known_keys(data: Any, path: YamlPath) -> list[str]:
    """The keys that the thing at `path` may have; for a field with written choices, the choices."""
    holder, field = path, None
    struct = _struct_at(data, holder)
    if struct is None and path:
        holder, field = path[:-1], str(path[-1])
        struct = _struct_at(data, holder)
    if struct is None:
        return []
    if field is None:
        tagged = struct.__struct_config__.tag is not None
        return [*(["kind"] if tagged else []), *struct.__struct_fields__]
    kind = {info.name: info.type for info in msgspec.structs.fields(struct)}.get(field)
    return _choices(kind)


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [choice for part in get_args(kind) for choice in _choices(part)]


def _pages(path: YamlPath) -> tuple[type, ...]:
    for step in reversed(path):
        if step in _DOORS:
            return _DOORS[str(step)]
        if step in ("block", "pattern", "blocks"):
            return _BLOCKS
    return ()


def _struct_at(data: Any, path: YamlPath) -> Any:
    value = data
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    if not isinstance(value, dict):
        return None
    if not path:
        return Spec
    if "kind" in value:
        return next((page for page in _pages(path) if tag_of(page) == value["kind"]), None)
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    return _PLAIN.get(name)
