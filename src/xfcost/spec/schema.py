"""The JSON Schema of the grammar; the keys, kinds and meanings of fields that error messages name."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, Union, cast

import msgspec
from msgspec.inspect import CustomType, ListType, LiteralType, StructType, Type, UnionType, type_info

from xfcost.spec.grammar import COMPONENT_FIELDS, OneOf, Spec
from xfcost.spec.reader import YamlPath, value_at


@cache
def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> the docstring under it, in the struct itself or in the nearest base class that has one.

    The meaning of the tag `kind` is the first line of the struct's docstring.
    """
    docstrings: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        docstrings |= _field_docstrings(base.__module__).get(base.__qualname__, {})
    fields = msgspec.structs.fields(struct)
    result = {field.encode_name: docstrings[field.name] for field in fields if field.name in docstrings}
    tag_field = struct.__struct_config__.tag_field
    if tag_field and struct.__doc__:
        result[tag_field] = struct.__doc__.strip().partition("\n")[0]
    return result


def clause(meaning: str) -> str:
    """A meaning within another sentence: `Width d_k of a head; d/h by default.` -> `width d_k of a head`."""
    first = re.split(r";|(?<!\bal)\. ", meaning, maxsplit=1)[0].removesuffix(".")  # `et al.` ends no sentence
    return first if first[1:2].isupper() else first[:1].lower() + first[1:]


@cache
def _field_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Class -> field -> the docstring under the field, for the classes at a module's top level."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # installed without sources, or built in
        return {}
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_documented(node.body)) for node in classes}


def _documented(body: list[ast.stmt]) -> list[tuple[str, str]]:
    """(field, docstring) of every annotated name that a string follows."""
    return [
        (field.target.id, " ".join(below.value.value.split()))
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    ]


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

    The schema of a field that holds a component is that of the union of all its classes.
    """
    unions = [Union[tuple(field.components())] for field in COMPONENT_FIELDS]  # noqa: UP007 - built from a list

    def generated(schema_of: Callable[[type], dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
        return msgspec.json.schema_components([*unions, *structs], schema_hook=schema_of, ref_template="#/$defs/{name}")

    schemas, _ = generated(lambda field: {"title": field.__name__})
    by_field = dict(zip(COMPONENT_FIELDS, schemas[: len(unions)], strict=True))
    schemas, definitions = generated(by_field.__getitem__)
    return schemas[len(unions) :], definitions


def meaning_at(data: Any, path: YamlPath) -> str | None:
    """The meaning of the field at `path` (of an item, that of its list); None where the kind leaves it open."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    if not path:
        return None
    holders = [struct for struct in _possible_structs(*_at(path[:-1], data)) if path[-1] in _keys(struct)]
    return meanings(holders[0].cls).get(str(path[-1])) if len(holders) == 1 else None


def known_kinds(path: YamlPath) -> list[str]:
    """The kinds that are allowed at `path` (which ends in "kind")."""
    types, _ = _at(path[:-1])
    kinds = [kind for type_ in types if (field := _component_field(type_)) for kind in field.kinds()]
    return kinds + [str(type_.tag) for type_ in types if isinstance(type_, StructType) and type_.tag is not None]


def known_keys(data: Any, path: YamlPath) -> list[str]:
    """The keys that are allowed at `path`; of a field with a fixed set of values, the values."""
    types, value = _at(path, data)
    if isinstance(value, dict):
        return [key for struct in _possible_structs(types, value) for key in _keys(struct)]
    return [str(choice) for type_ in types if isinstance(type_, LiteralType) for choice in type_.values]


def _at(path: YamlPath, data: Any = None) -> tuple[list[Type], Any]:
    """The types that are allowed at `path`, given the kinds that `data` has along it; and the value there."""
    types: list[Type] = [_types_of(Spec)]
    value = data
    for step in path:
        if isinstance(step, int):
            inner = [type_.item_type for type_ in types if isinstance(type_, ListType)]
        else:
            structs = _possible_structs(types, value)
            inner = [field.type for struct in structs for field in struct.fields if field.encode_name == step]
        types = [member for type_ in inner for member in (type_.types if isinstance(type_, UnionType) else (type_,))]
        value = value_at(value, (step,))
    return types, value


@cache
def _types_of(struct: type[msgspec.Struct]) -> StructType:
    """Cached: a spec can have thousands of errors."""
    return cast("StructType", type_info(struct))


def _possible_structs(types: list[Type], value: Any) -> list[StructType]:
    """The structs among `types` that `value` can be: those of its kind, where it names one."""
    kind = value.get("kind") if isinstance(value, dict) else None
    structs = [struct for type_ in types for struct in _structs(type_, kind)]
    return [struct for struct in structs if kind in (None, struct.tag)]


def _component_field(type_: Type) -> OneOf | None:
    return type_.cls if isinstance(type_, CustomType) and isinstance(type_.cls, OneOf) else None


def _structs(type_: Type, kind: Any) -> list[StructType]:
    """A struct type itself; of a component field the struct of `kind`, or all of them without one."""
    if field := _component_field(type_):
        components = field.components() if kind is None else [field.component(kind)]
        return [_types_of(component) for component in components if component]
    return [type_] if isinstance(type_, StructType) else []


def structs_in(root: Type) -> Iterator[type[msgspec.Struct]]:
    """`root` and the structs inside it at any depth, each once."""
    seen: set[type[msgspec.Struct]] = set()
    unvisited = [root]
    while unvisited:
        type_ = unvisited.pop()
        if isinstance(type_, StructType):
            if type_.cls in seen:
                continue
            yield type_.cls
            seen.add(type_.cls)
            unvisited += [field.type for field in type_.fields]
        elif isinstance(type_, ListType):
            unvisited.append(type_.item_type)
        elif isinstance(type_, UnionType):
            unvisited += type_.types
        elif field := _component_field(type_):
            unvisited += [_types_of(component) for component in field.components()]


@cache
def places() -> dict[str, dict[str, list[str]]]:
    """Key -> its places in a spec, the shallowest first, each with the kinds of component that have it.

    `[]` is each item: `stages[].block[].heads`. A component of several fields is in the first of them.
    """
    found: dict[str, dict[str, list[str]]] = {}
    seen: set[type[msgspec.Struct]] = set()
    unvisited: list[tuple[Type, str]] = [(_types_of(Spec), "")]
    while unvisited:
        type_, place = unvisited.pop(0)
        if isinstance(type_, ListType):
            unvisited.insert(0, (type_.item_type, f"{place}[]"))
        elif isinstance(type_, UnionType):
            unvisited[:0] = [(one, place) for one in type_.types]
        elif field := _component_field(type_):
            unvisited[:0] = [(_types_of(component), place) for component in field.components()]
        elif isinstance(type_, StructType) and type_.cls not in seen:
            seen.add(type_.cls)
            for one in type_.fields:
                inside = f"{place}.{one.encode_name}".removeprefix(".")
                kinds = found.setdefault(one.encode_name, {}).setdefault(inside, [])
                kinds += [str(type_.tag)] if type_.tag is not None else []
                unvisited.append((one.type, inside))
    return found


def _keys(struct: StructType) -> list[str]:
    return [*([struct.tag_field] if struct.tag_field else []), *(field.encode_name for field in struct.fields)]
