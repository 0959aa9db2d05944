"""Everything that the grammar finds wrong with a spec, and not the first thing alone: converted part by part."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from xfcost.ledger.errors import SpecError, near_names
from xfcost.spec.explain import explained
from xfcost.spec.grammar import Spec
from xfcost.spec.kinds import OneOf, converted
from xfcost.spec.reader import Source, YamlPath


def problems(data: dict[str, Any], source: Source) -> tuple[list[SpecError], Spec | None]:
    """What is wrong with `data`, each thing at its place; and the spec without it, where it is unknown keys alone."""
    found = list(_of_value(data, Spec, ()))
    return [explained(message, data, source, path) for path, message in found], _without_unknown(data, found)


def _without_unknown(data: dict[str, Any], found: list[tuple[YamlPath, str]]) -> Spec | None:
    if not all(_unknown(message) for _, message in found):
        return None
    try:
        return converted(_pruned(data, {(*path, _unknown(message)) for path, message in found}, ()), Spec)
    except msgspec.ValidationError:
        return None


def _unknown(message: str) -> str | None:
    """The key that the validator doesn't know, where that is what it says."""
    before, _, rest = message.partition("unknown field `")
    return rest.partition("` - at `$")[0].removesuffix("`") if before and rest else None


def _pruned(value: Any, paths: set[tuple[Any, ...]], here: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        return {k: _pruned(v, paths, (*here, k)) for k, v in value.items() if (*here, k) not in paths}
    return [_pruned(v, paths, (*here, n)) for n, v in enumerate(value)] if isinstance(value, list) else value


def _of_value(value: Any, hint: Any, path: YamlPath) -> Iterator[tuple[YamlPath, str]]:
    """(path, the validator's message) of every part that doesn't convert, its own message being of that part alone."""
    try:
        converted(value, hint)
    except msgspec.ValidationError as error:
        yield from list(_inside(value, list(_choices(hint, value)), path)) or [(path, str(error))]


def _inside(value: Any, choices: list[Any], path: YamlPath) -> Iterator[tuple[YamlPath, str]]:
    if isinstance(value, list):
        items = [get_args(one)[0] for one in choices if get_origin(one) is list]
        for number, item in enumerate(value if items else ()):
            yield from _of_value(item, items[0], (*path, number))
    elif isinstance(value, dict):
        structs = [one for one in choices if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        standing = [one for one in structs if one.__struct_config__.tag in (None, value.get("kind"))]
        if len(standing) == 1:
            yield from _of_struct(value, standing[0], path)


def _of_struct(value: dict[str, Any], struct: type[msgspec.Struct], path: YamlPath) -> Iterator[tuple[YamlPath, str]]:
    fields, hints = _fields(struct), _hints(struct)
    tag = struct.__struct_config__.tag_field
    for key, item in value.items():
        if key in fields:
            yield from _of_value(item, hints[fields[key].name], (*path, key))
        elif key != tag:
            yield path, f"Object contains unknown field `{key}`"
    unknown = [key for key in value if key not in fields and key != tag]
    for key, field in fields.items():
        if field.required and key not in value and not any(key in near_names(other, fields) for other in unknown):
            yield path, f"Object missing required field `{key}`"


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


@cache
def _hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _choices(hint: Any, value: Any) -> Iterator[Any]:
    """The types of which `hint` is one or the other; of a component, that of the kind that `value` says it is."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from _choices(get_args(hint)[0], value)
    elif origin in (Union, types.UnionType):
        for one in get_args(hint):
            yield from _choices(one, value)
    elif isinstance(hint, OneOf):
        named = hint.component(value.get("kind")) if isinstance(value, dict) else None
        yield from () if named is None else (named,)
    else:
        yield hint
