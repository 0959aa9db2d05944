"""What every family is: a struct whose fields are the config's, and how a config's fields become one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec.inspect import LiteralType, StructType, UnionType, type_info

from xfcost.formulas.component import Rows
from xfcost.importing.common import ONLY, REMARKED, UNCOUNTED
from xfcost.importing.draft import Draft
from xfcost.importing.file import ConfigFile, is_finite
from xfcost.ledger.errors import ComponentError, SpecError, nearest
from xfcost.spec.error_messages import expected, path_of, value_at
from xfcost.spec.reader import path_text, shown_value


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of models. Its fields are those of a config that change what is counted, with transformers' defaults.

    A field's type is what the grammar carries; `check` refuses what no type can say, by the field's name.
    """

    paper: ClassVar[str]
    architectures: ClassVar[tuple[str, ...]]
    """The classes of transformers that are carried; the first where a config names none."""
    uncounted: ClassVar[frozenset[str]] = frozenset()
    """Fields of this family alone that change nothing that is counted."""
    only: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = {}
    """Fields that are carried at some values alone: field -> (values, why no other)."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of fields, which transformers reads too."""
    mirrors: ClassVar[Mapping[str, str]] = {}
    """Fields that repeat another one, and that transformers doesn't read."""

    num_labels: Rows = 2
    """Classes, where a head classifies; the length of `id2label` too."""

    def check(self) -> None:
        """Raise ComponentError, naming the field, where the fields can't stand together."""

    def draft(self, architecture: str) -> Draft:
        """The spec of `architecture`, which is one of `architectures`."""
        raise NotImplementedError


def configured(kind: type[Family], file: ConfigFile, ignored: Collection[str] = ()) -> tuple[Family, list[str]]:
    """The family `kind` with what `file` says, but for the fields that the user lets be `ignored`; and remarks.

    Raises:
        SpecError: fields are not known, or say what can't be carried; all of them, with file, line and name.
    """
    values = {name: value for name, value in file.values.items() if name not in ("model_type", "architectures")}
    _ignore(values, ignored, kind, file)
    wrong = [*_miscounted_labels(values, file), *_contradicting_aliases(values, kind, file)]
    remarks = [f"{name}: {REMARKED[name]}." for name in values if name in REMARKED and _is_extra(name, kind)]
    wrong += _uncarried(values, kind, file)
    family, more = _converted(values, kind, file)
    wrong += more
    if not wrong:
        wrong += _contradictions(family, kind, file)
    if wrong:
        raise SpecError("\n".join(str(error) for error in sorted(wrong, key=lambda error: _line_of(error, file))))
    return family, remarks


def _is_extra(name: str, kind: type[Family]) -> bool:
    return name not in kind.__struct_fields__ and name not in kind.only


def _line_of(error: SpecError, file: ConfigFile) -> int:
    """The line that an error names, behind the file's name."""
    digits = re.match(r":(\d+)", str(error).removeprefix(file.name))
    return int(digits[1]) if digits else 0


def _uncarried(values: dict[str, Any], kind: type[Family], file: ConfigFile) -> Iterator[SpecError]:
    """What is wrong with fields that are none of the family's; they are taken out of `values`."""
    for name in list(values):
        try:
            if name not in kind.__struct_fields__:
                _check_uncarried(name, values.pop(name), kind, file)
            elif not is_finite(values[name]):
                got = shown_value(values.pop(name))
                raise file.error(as_written(name, kind, file), f"expected a finite number, got {got}")
        except SpecError as error:
            yield error


def _converted(values: dict[str, Any], kind: type[Family], file: ConfigFile) -> tuple[Family, list[SpecError]]:
    """The family, and every field that it can't take: the family then has its default instead."""
    wrong: list[SpecError] = []
    while True:
        try:
            return msgspec.convert(values, kind), wrong
        except msgspec.ValidationError as error:
            wrong.append(_explained(str(error), values, kind, file))
            del values[str(_place(error)[0])]


def _contradictions(family: Family, kind: type[Family], file: ConfigFile) -> Iterator[SpecError]:
    """What is wrong with fields that are right each alone."""
    try:
        family.check()
        _check_mirrors(family, file)
    except ComponentError as error:
        yield file.error(as_written(error.field, kind, file), error.message)
    except SpecError as error:
        yield error


def _place(error: msgspec.ValidationError) -> tuple[str | int, ...]:
    """The path of the value that a validator refuses."""
    return path_of(str(error).rpartition(" - at `$")[2].rstrip("`"))


def _ignore(values: dict[str, Any], ignored: Collection[str], kind: type[Family], file: ConfigFile) -> None:
    for name in ignored:
        if name in kind.__struct_fields__ or name in kind.aliases:
            raise file.error(
                name, "is carried, and can't be ignored: it changes what is counted; change it in the file"
            )
        if name not in values:
            raise file.error(name, f"--ignore names a field that the file doesn't have; {nearest(name, values)}")
        del values[name]


def _miscounted_labels(values: dict[str, Any], file: ConfigFile) -> Iterator[SpecError]:
    """`id2label`, the names of the classes, says how many there are: `num_labels`; or what is wrong with it."""
    names, number = values.pop("id2label", None), values.get("num_labels")
    if names is None:
        return
    if not isinstance(names, dict) or not names:
        got = shown_value(names)
        yield file.error("id2label", f"expected the names of the classes by their numbers, got {got}")
    elif number not in (None, len(names)):
        got = shown_value(number)
        yield file.error("num_labels", f"expected {len(names)}, the names in id2label, got {got}")
    else:
        values["num_labels"] = len(names)


def _contradicting_aliases(values: dict[str, Any], kind: type[Family], file: ConfigFile) -> Iterator[SpecError]:
    """Fields by the names that the family has for them; or what two names of one field say otherwise."""
    for alias, name in kind.aliases.items():
        if alias not in values:
            continue
        value = values.pop(alias)
        if name in values and not _same(values[name], value):
            said = f"is another name of {name}, which is {shown_value(values[name])}; got {shown_value(value)}"
            yield file.error(alias, f"{said}; leave one of the two out")
        else:
            values[name] = value


def _check_uncarried(name: str, value: Any, kind: type[Family], file: ConfigFile) -> None:
    """Refuse a field that no part of the family is, unless it is known to change nothing at this value."""
    if name in kind.mirrors or name in kind.uncounted or (name in REMARKED and name not in kind.only):
        return
    known = kind.only.get(name) or (None if name in UNCOUNTED else ONLY.get(name))
    if known is None:
        if name in UNCOUNTED:
            return
        near = nearest(name, [*kind.__struct_fields__, *kind.aliases])
        near = f"{near} " if near.startswith("did you mean") else ""
        raise file.error(
            name,
            f"is not known of this family, and {shown_value(value)} could change what is counted; {near}"
            f"where it changes nothing, --ignore {name}",
        )
    values, why = known
    if not any(_same(value, one) for one in values):
        words = " or ".join(shown_value(one) for one in values)
        raise file.error(name, f"expected {words}, got {shown_value(value)}: {why}")


def _check_mirrors(family: Family, file: ConfigFile) -> None:
    for mirror, name in type(family).mirrors.items():
        value = file.values.get(mirror)
        real = getattr(family, name)
        if value is not None and not _same(value, real):
            raise file.error(mirror, f"expected {name}, which is {shown_value(real)}, got {shown_value(value)}")


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON is: 1 is not true."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def as_written(name: str, kind: type[Family], file: ConfigFile) -> str:
    """The name by which the file writes the field."""
    if name in file.lines:
        return name
    if name == "num_labels" and "id2label" in file.lines:
        return "id2label"
    return next((alias for alias, known in kind.aliases.items() if known == name and alias in file.lines), name)


def _explained(message: str, values: dict[str, Any], kind: type[Family], file: ConfigFile) -> SpecError:
    """The validator's message in a user's words, at its field."""
    text, _, place = message.rpartition(" - at `$")
    path = path_of(place.rstrip("`"))
    if not path:  # a field that is missing: every one has a default
        raise AssertionError(message)
    name = as_written(str(path[0]), kind, file)
    field = path_text((name, *path[1:]))
    value = value_at(values, path)
    choices = _choices(kind, str(path[0]))
    wanted = f"expected {', '.join(choices)}" if choices else expected(text, value)
    near = nearest(value, choices) if isinstance(value, str) and choices else ""
    near = f"; {near}" if near.startswith("did you mean") else ""
    line = f":{file.lines[name]}" if name in file.lines else ""
    return SpecError(f"{file.name}{line} {field}: {wanted}, got {shown_value(value)}{near}")


def _choices(kind: type[Family], name: str) -> list[str]:
    """The words that the field may be, where it may be words alone."""
    struct = type_info(kind)
    assert isinstance(struct, StructType)  # noqa: S101 - for the type checker: a family is a struct
    field = next(one.type for one in struct.fields if one.name == name)
    types = field.types if isinstance(field, UnionType) else (field,)
    return [str(word) for one in types if isinstance(one, LiteralType) for word in one.values]
