"""All grammar errors of a spec, and not the first one alone, in plain words.

Every part is validated by itself. An error says where in the file it is, what was expected, what was given, how to mend
it.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from xfcost.ledger.errors import KIND_WORDS, SpecError, did_you_mean, near_names, nearest
from xfcost.spec.grammar import OneOf, Spec, StageSpec, converted, split_path
from xfcost.spec.other_names import OWN_KEYS, OWN_KINDS
from xfcost.spec.reader import Source, YamlPath, path_text, shown_value, value_at
from xfcost.spec.schema import clause, known_keys, known_kinds, meaning_at, places

# How similar a word is to that which it misspells.
_SAME_WORD: Final = 0.85


def spec_error(message: str, data: dict[str, Any], source: Source, base: YamlPath = ()) -> SpecError:
    """The validator's message as a SpecError at its place in the file, with near names where a name is wrong.

    Args:
        message: the validator's, about the part of `data` at `base`.
        data: the whole spec.
        source: the lines of the whole spec.
        base: the path of the part that was validated.
    """
    text, inner_path = split_path(message)
    path = (*base, *path_of(inner_path))
    if match := re.search(r"unknown field `(.*)`", text, re.DOTALL):
        key = match[1]
        return source.error((*path, key), f"unknown key {shown_value(key)}; {_mend_of_key(key, data, path)}")
    if match := re.search(r"missing required field `(.*)`", text):
        return source.error(path, _missing(match[1], data, path))
    value = value_at(data, path)
    if path and path[-1] == "kind":
        return source.error(path, f"unknown kind {shown_value(value)}; {_mend_of_kind(str(value), known_kinds(path))}")
    if "Invalid enum value" in text:
        return source.error(path, f"got {shown_value(value)}; {nearest(str(value), known_keys(data, path))}")
    return source.error(path, f"{expected(text, value)}, got {shown_value(value)}{_meaning(data, path)}")


def _mend_of_key(key: str, data: dict[str, Any], path: YamlPath) -> str:
    """The key that was meant: another framework's word, one of another place, a similar one; else those that are known.

    `path` is that of the mapping with the key.
    """
    known, own = known_keys(data, path), OWN_KEYS.get(key)
    if own is not None and own.key in known:
        return did_you_mean([own.key])
    here = re.sub(r"\[\d+\]", "[]", path_text(path))
    inside = f"{here}." if here else ""
    # inside this mapping first, then where no kind decides, then the shallowest
    elsewhere = sorted(places().get(key, {}).items(), key=lambda one: (not one[0].startswith(inside), bool(one[1])))
    if elsewhere and (elsewhere[0][0].startswith(inside) or not near_names(key, known, _SAME_WORD)):
        return f"its place is {_placed(*elsewhere[0])}"
    kind = (value_at(data, path) or {}).get("kind") if path else None
    if own is not None and (kind is None or not own.kind):
        return f"it is {_placed(own.place, [own.kind] if own.kind else [])} here"
    return nearest(key, known)


def _placed(place: str, kinds: list[str]) -> str:
    """`stages[].block[].heads`; of one kind alone `embed[].size of {kind: patch}`."""
    if "." not in place:
        return f"{place} at the top of the file"
    return f"{place} of {{kind: {kinds[0]}}}" if len(kinds) == 1 else place


def _mend_of_kind(kind: str, known: list[str]) -> str:
    """The kind that was meant: another framework's word, also misspelt, or a similar one; else those that are known."""
    others = [word for word, own in OWN_KINDS.items() if own in known]
    meant = [OWN_KINDS[near] for near in near_names(kind.lower(), others, _SAME_WORD)]
    return (
        did_you_mean(meant[:1]) if meant and kind not in near_names(kind, known, _SAME_WORD) else nearest(kind, known)
    )


def _meaning(data: dict[str, Any], path: YamlPath) -> str:
    """The meaning of the field at `path`, in parentheses; nothing of an unknown key."""
    meaning = meaning_at(data, path)
    return f" ({clause(meaning)})" if meaning else ""


def _missing(key: str, data: dict[str, Any], path: YamlPath) -> str:
    if key == "kind":
        return f"the key 'kind' is missing; {nearest('', known_kinds((*path, 'kind')))}"
    near = nearest(key, value_at(data, path) or {}) if path else ""
    hint = f" ({near})" if near.startswith("did you mean") else _meaning(data, (*path, key))
    return f"the key '{key}' is missing{hint}"


def expected(text: str, value: Any) -> str:
    """What was expected, in plain words: `Expected int, got str` -> "expected a whole number", with its bounds."""
    match = re.match(r"Expected `([^`]+)`(.*)", text.partition(", got `")[0], re.DOTALL)
    if not match:
        return "expected a number of a sensible size" if "out of range" in text else text[0].lower() + text[1:]
    kinds, limit = match[1].split(" | "), match[2]
    wanted = " or ".join(KIND_WORDS.get(kind, kind) for kind in kinds if kind != "null")
    if "regex" in limit:
        one_line = "x00" in limit
        return "expected one line of plain text" if one_line else "expected a word of letters, digits and _"
    if kinds[0] == "str" and not limit and isinstance(value, int | float):
        return "expected text (put it in quotes)"
    for sign, word in ((">= ", "at least "), ("<= ", "at most "), ("> ", "more than "), ("< ", "less than ")):
        if sign in limit:
            number = limit.partition(sign)[2]
            sized = ("character" if kinds[0] == "str" else "item") + ("" if number == "1" else "s")
            return f"expected {wanted} " + (
                f"of {word}{number} {sized}" if "length" in limit else f"of {word}{_number(number)}"
            )
    return f"expected {wanted}"


def _number(text: str) -> str:
    value = float(text)
    return f"{int(value):,}" if value.is_integer() and value < 1e15 else text  # noqa: PLR2004 - longer is no help


def path_of(text: str) -> YamlPath:
    """`.stages[1].block[0].heads` -> ("stages", 1, "block", 0, "heads")."""
    return tuple(int(number) if number else word for word, number in re.findall(r"\.([^.\[]+)|\[(\d+)\]", text))


Finding = tuple[YamlPath, str]
"""The path of a part that doesn't convert, and the validator's message about that part alone."""


# Keys of which a spec or a stage needs one; where it has none, the first is missing.
_ALTERNATIVES: Final[dict[type[msgspec.Struct], list[tuple[str, ...]]]] = {
    Spec: [("stages", "encoder", "decoder")],
    StageSpec: [("block", "pattern", "blocks"), ("depth", "blocks")],
}


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
    required = [(key,) for key, field in fields.items() if field.required] + _ALTERNATIVES.get(struct, [])
    for key, *others in required:
        misspelt = any(key in near_names(other, fields) for other in unknown)
        if not misspelt and not {key, *others} & value.keys():
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
