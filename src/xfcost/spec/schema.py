"""What the grammar knows: its JSON Schema, and the names that an error can suggest."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Union, cast

import msgspec
from msgspec.inspect import CustomType, ListType, LiteralType, StructType, Type, UnionType, type_info

from xfcost.spec.grammar import COMPONENT_FIELDS, Spec
from xfcost.spec.kinds import OneOf
from xfcost.spec.reader import YamlPath


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file, for editors."""
    unions = [Union[tuple(field.components())] for field in COMPONENT_FIELDS]  # noqa: UP007 - made of a list

    def generated(schema_of: Callable[[type], dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
        return msgspec.json.schema_components([Spec, *unions], schema_hook=schema_of)

    (_, *schemas), _ = generated(lambda field: {"title": field.__name__})
    # a field's schema is that of the union of all classes which may stand there
    (spec, *_), defs = generated(dict(zip(COMPONENT_FIELDS, schemas, strict=True)).__getitem__)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "xfcost spec"} | spec | {"$defs": defs}


def known_kinds(path: YamlPath) -> list[str]:
    """The kinds that may stand at `path` (which ends in "kind")."""
    types, _ = _at(path[:-1])
    written = [kind for one in types if (field := _component_field(one)) for kind in field.kinds()]
    return written + [str(one.tag) for one in types if isinstance(one, StructType) and one.tag is not None]


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
def _types_of(struct: type[msgspec.Struct]) -> StructType:
    """Worked out once: a spec can have thousands of errors."""
    return cast("StructType", type_info(struct))


def _standing(types: list[Type], value: Any) -> list[StructType]:
    """The structs among `types` that `value` can be: the one of its kind, where it says one."""
    kind = value.get("kind") if isinstance(value, dict) else None
    structs = [struct for one in types for struct in _structs(one, kind)]
    return [one for one in structs if kind in (None, one.tag)]


def _component_field(one: Type) -> OneOf | None:
    return one.cls if isinstance(one, CustomType) and isinstance(one.cls, OneOf) else None


def _structs(one: Type, kind: Any) -> list[StructType]:
    """The struct that a type is; of a component that of its kind, and all of them where it says none."""
    if field := _component_field(one):
        found = field.components() if kind is None else [field.component(kind)]
        return [_types_of(component) for component in found if component]
    return [one] if isinstance(one, StructType) else []


def _keys(struct: StructType) -> list[str]:
    return [*([struct.tag_field] if struct.tag_field else []), *(field.encode_name for field in struct.fields)]
