"""The base of all families, and how a config's fields are checked and read into one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec.inspect import LiteralType, StructType, UnionType, type_info

from xfcost.formulas.component import Rows
from xfcost.importing.common import COST_FREE, REMARKS, SUPPORTED_VALUES
from xfcost.importing.draft import Draft
from xfcost.importing.file import ConfigFile, is_finite
from xfcost.ledger.errors import ComponentError, SpecError, nearest
from xfcost.spec.error_messages import expected, path_of, value_at
from xfcost.spec.kinds import split_path
from xfcost.spec.reader import path_text, shown_value


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of models: the fields of a config that change a count, with transformers' defaults.

    A field's type has the values that a spec can express; `check` refuses combinations.
    """

    paper: ClassVar[str]
    architectures: ClassVar[tuple[str, ...]]
    """The supported classes of transformers; the first is the default."""
    cost_free: ClassVar[frozenset[str]] = frozenset()
    """Fields of this family alone that change no count."""
    supported_values: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {}
    """Fields that are supported at these values only: field -> (values, reason)."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of fields, which transformers accepts."""
    mirrors: ClassVar[Mapping[str, str]] = {}
    """Fields that repeat another field or property, and that transformers ignores."""

    num_labels: Rows = 2
    """Classes of a classifier; also the length of `id2label`."""

    def check(self) -> None:
        """Raise ComponentError with the field's name if fields contradict each other."""

    def draft(self, architecture: str) -> Draft:
        """The spec of `architecture`, one of `architectures`."""
        raise NotImplementedError


def read_family(family_type: type[Family], file: ConfigFile, ignored: Collection[str] = ()) -> tuple[Family, list[str]]:
    """The family with the fields of `file`, without the `ignored` ones; and remarks.

    Raises:
        SpecError: fields are unknown or not supported; the message lists all of them, with file, line and name.
    """
    values = {name: value for name, value in file.values.items() if name not in ("model_type", "architectures")}
    _ignore(values, ignored, family_type, file)
    errors = [*_label_errors(values, file), *_alias_errors(values, family_type, file)]
    remarks = [f"{name}: {REMARKS[name]}." for name in values if name in REMARKS and _is_unread(name, family_type)]
    errors += _field_errors(values, family_type, file)
    family, type_errors = _converted(values, family_type, file)
    errors += type_errors
    if not errors:
        errors += _contradictions(family, family_type, file)
    if errors:
        raise SpecError("\n".join(str(error) for error in sorted(errors, key=lambda error: _line_of(error, file))))
    return family, remarks


def _is_unread(name: str, family_type: type[Family]) -> bool:
    return name not in family_type.__struct_fields__ and name not in family_type.supported_values


def _line_of(error: SpecError, file: ConfigFile) -> int:
    """The line number in an error's message."""
    digits = re.match(r":(\d+)", str(error).removeprefix(file.name))
    return int(digits[1]) if digits else 0


def _field_errors(values: dict[str, Any], family_type: type[Family], file: ConfigFile) -> Iterator[SpecError]:
    """Errors of fields that the family doesn't have, which leave `values`, and of infinite numbers."""
    for name in list(values):
        try:
            if name not in family_type.__struct_fields__:
                _check_unread(name, values.pop(name), family_type, file)
            elif not is_finite(values[name]):
                got = shown_value(values.pop(name))
                raise file.error(name_in_file(name, family_type, file), f"expected a finite number, got {got}")
        except SpecError as error:
            yield error


def _converted(values: dict[str, Any], family_type: type[Family], file: ConfigFile) -> tuple[Family, list[SpecError]]:
    """The family, and errors of fields with a errors type; the family has their defaults."""
    errors: list[SpecError] = []
    while True:
        try:
            return msgspec.convert(values, family_type), errors
        except msgspec.ValidationError as error:
            errors.append(_explained(str(error), values, family_type, file))
            del values[str(_path(error)[0])]


def _contradictions(family: Family, family_type: type[Family], file: ConfigFile) -> Iterator[SpecError]:
    """Errors of fields that contradict each other."""
    try:
        family.check()
        _check_mirrors(family, file)
    except ComponentError as error:
        yield file.error(name_in_file(error.field, family_type, file), error.message)
    except SpecError as error:
        yield error


def _path(error: msgspec.ValidationError) -> tuple[str | int, ...]:
    """The path of the value that the validator refuses."""
    return path_of(split_path(str(error))[1])


def _ignore(values: dict[str, Any], ignored: Collection[str], family_type: type[Family], file: ConfigFile) -> None:
    for name in ignored:
        if name in family_type.__struct_fields__ or name in family_type.aliases:
            raise file.error(name, "changes what is counted and can't be ignored; change it in the file")
        if name not in values:
            raise file.error(name, f"--ignore names a field that the file doesn't have; {nearest(name, values)}")
        del values[name]


def _label_errors(values: dict[str, Any], file: ConfigFile) -> Iterator[SpecError]:
    """Replace `id2label` in `values` by its length, `num_labels`; yield errors."""
    names, number = values.pop("id2label", None), values.get("num_labels")
    if names is None:
        return
    if not isinstance(names, dict) or not names:
        got = shown_value(names)
        yield file.error("id2label", f"expected class names by class number, got {got}")
    elif number not in (None, len(names)):
        got = shown_value(number)
        yield file.error("num_labels", f"expected {len(names)}, the names in id2label, got {got}")
    else:
        values["num_labels"] = len(names)


def _alias_errors(values: dict[str, Any], family_type: type[Family], file: ConfigFile) -> Iterator[SpecError]:
    """Replace aliases in `values` by the family's names; yield an error if two names of one field differ."""
    for alias, name in family_type.aliases.items():
        if alias not in values:
            continue
        value = values.pop(alias)
        if name in values and not _same(values[name], value):
            difference = f"is another name of {name}, which is {shown_value(values[name])}; got {shown_value(value)}"
            yield file.error(alias, f"{difference}; leave one of the two out")
        else:
            values[name] = value


def _check_unread(name: str, value: Any, family_type: type[Family], file: ConfigFile) -> None:
    """Refuse a field that the family doesn't have, unless this value is known to change no count."""
    if (
        name in family_type.mirrors
        or name in family_type.cost_free
        or (name in REMARKS and name not in family_type.supported_values)
    ):
        return
    known = family_type.supported_values.get(name) or (None if name in COST_FREE else SUPPORTED_VALUES.get(name))
    if known is None:
        if name in COST_FREE:
            return
        near = nearest(name, [*family_type.__struct_fields__, *family_type.aliases])
        near = f"{near} " if near.startswith("did you mean") else ""
        raise file.error(
            name,
            f"is unknown in this family, and {shown_value(value)} could change what is counted; {near}"
            f"if it changes nothing, --ignore {name}",
        )
    supported, reason = known
    if not any(_same(value, candidate) for candidate in supported):
        expected_values = " or ".join(shown_value(candidate) for candidate in supported)
        raise file.error(name, f"expected {expected_values}, got {shown_value(value)}: {reason}")


def _check_mirrors(family: Family, file: ConfigFile) -> None:
    for mirror, name in type(family).mirrors.items():
        value = file.values.get(mirror)
        actual = getattr(family, name)
        if value is not None and not _same(value, actual):
            raise file.error(mirror, f"expected {name}, which is {shown_value(actual)}, got {shown_value(value)}")


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON values: 1 is not true."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def name_in_file(name: str, family_type: type[Family], file: ConfigFile) -> str:
    """The field's name as the file has it."""
    if name in file.lines:
        return name
    if name == "num_labels" and "id2label" in file.lines:
        return "id2label"
    return next((alias for alias, known in family_type.aliases.items() if known == name and alias in file.lines), name)


def _explained(message: str, values: dict[str, Any], family_type: type[Family], file: ConfigFile) -> SpecError:
    """The validator's message with file, line and field, in the grammar's words."""
    text, end = split_path(message)
    path = path_of(end)
    if not path:  # a missing field, but every field has a default
        raise AssertionError(message)
    name = name_in_file(str(path[0]), family_type, file)
    field = path_text((name, *path[1:]))
    value = value_at(values, path)
    choices = _choices(family_type, str(path[0]))
    expectation = f"expected {', '.join(choices)}" if choices else expected(text, value)
    near = nearest(value, choices) if isinstance(value, str) and choices else ""
    near = f"; {near}" if near.startswith("did you mean") else ""
    line = f":{file.lines[name]}" if name in file.lines else ""
    return SpecError(f"{file.name}{line} {field}: {expectation}, got {shown_value(value)}{near}")


def _choices(family_type: type[Family], name: str) -> list[str]:
    """The allowed words of a field; empty if it allows anything else."""
    struct = type_info(family_type)
    assert isinstance(struct, StructType)  # noqa: S101 - for the type checker: a family is a struct
    field_type = next(field.type for field in struct.fields if field.name == name)
    types = field_type.types if isinstance(field_type, UnionType) else (field_type,)
    return [str(word) for literal in types if isinstance(literal, LiteralType) for word in literal.values]
