"""All grammar errors of a spec, and not the first one alone: every part is validated by itself."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from xfcost.ledger.errors import SpecError, near_names
from xfcost.spec.error_messages import spec_error
from xfcost.spec.grammar import Spec
from xfcost.spec.kinds import OneOf, converted
from xfcost.spec.reader import Source, YamlPath

Finding = tuple[YamlPath, str]
"""The path of a part that doesn't convert, and the validator's message about that part alone."""


def grammar_errors(data: dict[str, Any], source: Source) -> tuple[list[SpecError], Spec | None]:
    """Every error in `data` with its path; and, where unknown keys are the only errors, the spec without these keys."""
    findings = list(_in_value(data, Spec, ()))
    errors = [spec_error(message, data, source, path) for path, message in findings]
    return errors, _without_unknown_keys(data, findings)


def _without_unknown_keys(data: dict[str, Any], findings: list[Finding]) -> Spec | None:
    keys = [(*path, _unknown_key(message)) for path, message in findings]
    if not all(path[-1] for path in keys):
        return None
    try:
        return converted(_pruned(data, set(keys), ()), Spec)
    except msgspec.ValidationError:
        return None


def _unknown_key(message: str) -> str | None:
    """The unknown key that the validator's message names; None of another message."""
    before, _, rest = message.partition("unknown field `")
    return rest.partition("` - at `$")[0].removesuffix("`") if before and rest else None


def _pruned(value: Any, removed: set[tuple[Any, ...]], path: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        return {k: _pruned(v, removed, (*path, k)) for k, v in value.items() if (*path, k) not in removed}
    return [_pruned(v, removed, (*path, n)) for n, v in enumerate(value)] if isinstance(value, list) else value


def _in_value(value: Any, hint: Any, path: YamlPath) -> Iterator[Finding]:
    """The errors in the parts of `value`; its own one where no part has any."""
    try:
        converted(value, hint)
    except msgspec.ValidationError as error:
        yield from list(_in_parts(value, list(_choices(hint, value)), path)) or [(path, str(error))]


def _in_parts(value: Any, choices: list[Any], path: YamlPath) -> Iterator[Finding]:
    if isinstance(value, list):
        items = [get_args(choice)[0] for choice in choices if get_origin(choice) is list]
        for number, item in enumerate(value if items else ()):
            yield from _in_value(item, items[0], (*path, number))
    elif isinstance(value, dict):
        structs = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, msgspec.Struct)]
        of_kind = [struct for struct in structs if struct.__struct_config__.tag in (None, value.get("kind"))]
        if len(of_kind) == 1:
            yield from _in_struct(value, of_kind[0], path)


def _in_struct(value: dict[str, Any], struct: type[msgspec.Struct], path: YamlPath) -> Iterator[Finding]:
    fields = _fields(struct)
    tag = struct.__struct_config__.tag_field
    for key, item in value.items():
        if key in fields:
            yield from _in_value(item, fields[key].type, (*path, key))
        elif key != tag:
            yield path, f"Object contains unknown field `{key}`"
    unknown = [key for key in value if key not in fields and key != tag]
    for key, field in fields.items():
        if field.required and key not in value and not any(key in near_names(other, fields) for other in unknown):
            yield path, f"Object missing required field `{key}`"


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def _choices(hint: Any, value: Any) -> Iterator[Any]:
    """The types that `hint` allows; of a component field, the class of the kind that `value` names."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from _choices(get_args(hint)[0], value)
    elif origin in (Union, types.UnionType):
        for alternative in get_args(hint):
            yield from _choices(alternative, value)
    elif isinstance(hint, OneOf):
        component = hint.component(value.get("kind")) if isinstance(value, dict) else None
        yield from () if component is None else (component,)
    else:
        yield hint
