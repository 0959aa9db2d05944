"""What the grammar knows: its JSON Schema, and the names that an error can suggest."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec.inspect import ListType, LiteralType, StructType, Type, UnionType, type_info

from xfcost.spec.grammar import Spec
from xfcost.spec.reader import YamlPath


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file, for editors."""
    schema = msgspec.json.schema(Spec)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "xfcost spec"} | schema


def known_kinds(path: YamlPath) -> list[str]:
    """The kinds that may stand at `path` (which ends in "kind")."""
    types, _ = _at(path[:-1])
    return [str(one.tag) for one in types if isinstance(one, StructType) and one.tag is not None]


def known_keys(data: Any, path: YamlPath) -> list[str]:
    """The keys that the thing at `path` may have; for a field with written choices, the choices."""
    types, value = _at(path, data)
    if isinstance(value, dict):
        return [key for one in _standing(types, value) for key in _keys(one)]
    return [str(choice) for one in types if isinstance(one, LiteralType) for choice in one.values]


def _at(path: YamlPath, data: Any = None) -> tuple[list[Type], Any]:
    """The types that may stand at `path`, by the fields along it (of the kinds that `data` has there); what stands."""
    types: list[Type] = [_types_of(Spec)]
    value = data
    for step in path:
        if isinstance(step, int):
            inner = [one.item_type for one in types if isinstance(one, ListType)]
        else:
            holders = _standing(types, value)
            inner = [field.type for one in holders for field in one.fields if field.encode_name == step]
        types = [alone for one in inner for alone in (one.types if isinstance(one, UnionType) else (one,))]
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            value = None
    return types, value


@cache
def _types_of(struct: type[msgspec.Struct]) -> Type:
    """Worked out once: a spec can have thousands of errors."""
    return type_info(struct)


def _standing(types: list[Type], value: Any) -> list[StructType]:
    """The structs among `types` that `value` can be: the one of its kind, where it says one."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return [one for one in types if isinstance(one, StructType) and kind in (None, one.tag)]


def _keys(struct: StructType) -> list[str]:
    return [*([struct.tag_field] if struct.tag_field else []), *(field.encode_name for field in struct.fields)]
