"""What the grammar knows: its JSON Schema, and the names and meanings that an error can give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Union, cast

import msgspec
from msgspec.inspect import CustomType, ListType, LiteralType, StructType, Type, UnionType, type_info

from xfcost.spec.grammar import COMPONENT_FIELDS, Spec
from xfcost.spec.kinds import OneOf
from xfcost.spec.meanings import meanings
from xfcost.spec.reader import YamlPath


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file, for editors, every property with its meaning."""
    structs = list(structs_in(_types_of(Spec)))
    references, definitions = _schemas(structs)
    for struct, reference in zip(structs, references, strict=True):
        properties = definitions[reference["$ref"].rpartition("/")[2]]["properties"]
        for name, meaning in meanings(struct).items():
            properties[name] = {"description": meaning} | properties[name]
    start = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "xfcost spec"}
    return start | references[0] | {"$defs": definitions}


def _schemas(structs: list[type[msgspec.Struct]]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The schemas of `structs`, and the definitions that they refer to.

    The schema of a field that holds a component is that of the union of all classes which may stand there.
    """
    unions = [Union[tuple(field.components())] for field in COMPONENT_FIELDS]  # noqa: UP007 - made of a list

    def generated(schema_of: Callable[[type], dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
        return msgspec.json.schema_components([*unions, *structs], schema_hook=schema_of, ref_template="#/$defs/{name}")

    schemas, _ = generated(lambda field: {"title": field.__name__})
    known = dict(zip(COMPONENT_FIELDS, schemas[: len(unions)], strict=True))
    schemas, definitions = generated(known.__getitem__)
    return schemas[len(unions) :], definitions


def meaning_at(data: Any, path: YamlPath) -> str | None:
    """The meaning of the field at `path` (or of the list that the item there is of); None where several may stand."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    if not path:
        return None
    holders = [one for one in _standing(*_at(path[:-1], data)) if path[-1] in _keys(one)]
    return meanings(holders[0].cls).get(str(path[-1])) if len(holders) == 1 else None


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


def structs_in(type_: Type) -> Iterator[type[msgspec.Struct]]:
    """`type_` and the structs that stand in it at any depth, each once."""
    seen: set[type[msgspec.Struct]] = set()
    left = [type_]
    while left:
        one = left.pop()
        if isinstance(one, StructType):
            if one.cls in seen:
                continue
            yield one.cls
            seen.add(one.cls)
            left += [field.type for field in one.fields]
        elif isinstance(one, ListType):
            left.append(one.item_type)
        elif isinstance(one, UnionType):
            left += one.types
        elif field := _component_field(one):
            left += [_types_of(component) for component in field.components()]


def _keys(struct: StructType) -> list[str]:
    return [*([struct.tag_field] if struct.tag_field else []), *(field.encode_name for field in struct.fields)]
