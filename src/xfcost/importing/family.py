"""The base of all families, and how a config's fields are checked and read into one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec.inspect import LiteralType, StructType, UnionType, type_info

from xfcost.formulas.component import Rows
from xfcost.importing.common import COST_FREE, REMARKS, SUPPORTED_VALUES
from xfcost.importing.file import ConfigFile, is_finite
from xfcost.ledger.errors import ComponentError, SpecError, divisors_text, nearest
from xfcost.spec.error_messages import expected, path_of, value_at
from xfcost.spec.kinds import split_path
from xfcost.spec.reader import path_text, shown_value


class Draft(NamedTuple):
    """The keys of a spec without name and paper, in the grammar's order."""

    keys: dict[str, Any]
    remarks: list[str]
    """Sentences for the comment at the top: assumptions, fields without a cost, omissions."""


def classes(model: str, tasks: str) -> tuple[str, ...]:
    """The names of transformers' classes: of `Bert` and `Model MaskedLM` they are BertModel and BertForMaskedLM."""
    return tuple(f"{model}{task}" if task.endswith("Model") else f"{model}For{task}" for task in tasks.split())


def check_heads(field: str, heads: int, width_field: str, width: int) -> None:
    """Raise ComponentError if `heads` don't divide the width."""
    if width % heads:
        divisors = divisors_text(width)
        raise ComponentError(
            field, f"{heads} heads don't divide the width {width} ({width_field}); it could be {divisors}"
        )


# Another name of a field -> the name that this reader knows.
Aliases = Mapping[str, str]
# A field -> the values that are supported, and why others are not.
Values = Mapping[str, tuple[tuple[Any, ...], str]]


class Family(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A family of models: the fields of a config that change a count, with transformers' defaults.

    A field's type has the values that a spec can express; `check` refuses combinations.
    """

    paper: ClassVar[str]
    architectures: ClassVar[tuple[str, ...]]
    """The supported classes of transformers; the first is the default."""
    cost_free: ClassVar[frozenset[str]] = frozenset()
    """Fields of this family alone that change no count."""
    supported_values: ClassVar[Values] = {}
    """Fields that are supported at these values only: field -> (values, reason)."""
    aliases: ClassVar[Aliases] = {}
    """Other names of fields, which transformers accepts."""
    mirrors: ClassVar[Aliases] = {}
    """Fields that repeat another field or property, and that transformers ignores."""
    heads_and_width: ClassVar[tuple[str, str] | None] = None
    """The fields with the number of heads and with the width that it divides."""

    num_labels: Rows = 2
    """Classes of a classifier; also the length of `id2label`."""

    def check(self) -> None:
        """Raise ComponentError with the field's name if fields contradict each other."""
        if self.heads_and_width:
            heads, width = self.heads_and_width
            check_heads(heads, getattr(self, heads), width, getattr(self, width))

    def draft(self, architecture: str) -> Draft:
        """The spec of `architecture`, one of `architectures`."""
        raise NotImplementedError


def read_family(family_type: type[Family], file: ConfigFile, ignored: Collection[str] = ()) -> tuple[Family, list[str]]:
    """The family with the fields of `file`, without the `ignored` ones; and remarks.

    Raises:
        SpecError: fields are unknown or not supported; the message lists all of them, with file, line and name.
    """
    fields = _Fields(family_type, file)
    fields.ignore(ignored)
    fields.count_labels()
    fields.rename_aliases()
    remarks = [
        f"{name}: {REMARKS[name]}."
        for name in fields.values
        if name in REMARKS and name not in family_type.__struct_fields__ and name not in family_type.supported_values
    ]
    fields.check_each()
    family = fields.family()
    if errors := fields.errors or [*_contradictions(family, file)]:
        raise SpecError("\n".join(str(error) for error in sorted(errors, key=lambda error: _line_of(error, file))))
    return family, remarks


class _Fields:
    """The fields of a config on their way into a family, and the errors found."""

    def __init__(self, family_type: type[Family], file: ConfigFile) -> None:
        self.type, self.file = family_type, file
        self.values = {key: value for key, value in file.values.items() if key not in ("model_type", "architectures")}
        self.errors: list[SpecError] = []

    def refuse(self, name: str, message: str) -> None:
        self.errors.append(self.file.error(name, message))

    def ignore(self, names: Collection[str]) -> None:
        """Leave out fields that are not read anyway."""
        for name in names:
            if name in self.type.__struct_fields__ or name in self.type.aliases:
                raise self.file.error(name, "changes what is counted and can't be ignored; change it in the file")
            if name not in self.values:
                near = nearest(name, self.values)
                raise self.file.error(name, f"--ignore names a field that the file doesn't have; {near}")
            del self.values[name]

    def count_labels(self) -> None:
        """Replace `id2label` by its length, `num_labels`."""
        names, number = self.values.pop("id2label", None), self.values.get("num_labels")
        if names is None:
            return
        if not isinstance(names, dict) or not names:
            self.refuse("id2label", f"expected class names by class number, got {shown_value(names)}")
        elif number not in (None, len(names)):
            self.refuse("num_labels", f"expected {len(names)}, the names in id2label, got {shown_value(number)}")
        else:
            self.values["num_labels"] = len(names)

    def rename_aliases(self) -> None:
        """Replace aliases by the family's names."""
        for alias, name in self.type.aliases.items():
            if alias not in self.values:
                continue
            value = self.values.pop(alias)
            own = self.values.setdefault(name, value)
            if not _same(own, value):
                difference = f"is another name of {name}, which is {shown_value(own)}; got {shown_value(value)}"
                self.refuse(alias, f"{difference}; leave one of the two out")

    def check_each(self) -> None:
        """Leave out fields that the family doesn't have, and infinite numbers; they are errors where they count."""
        for name in list(self.values):
            if name not in self.type.__struct_fields__:
                self._check_unread(name, self.values.pop(name))
            elif not is_finite(self.values[name]):
                got = shown_value(self.values.pop(name))
                self.refuse(name_in_file(name, self.type, self.file), f"expected a finite number, got {got}")

    def _check_unread(self, name: str, value: Any) -> None:
        """Refuse a field that the family doesn't have, unless this value is known to change no count."""
        own = self.type.supported_values.get(name)
        if name in self.type.mirrors or name in self.type.cost_free or (own is None and name in {*REMARKS, *COST_FREE}):
            return
        known = own or SUPPORTED_VALUES.get(name)
        if known is None:
            near = nearest(name, [*self.type.__struct_fields__, *self.type.aliases])
            near = f"{near} " if near.startswith("did you mean") else ""
            self.refuse(
                name,
                f"is unknown in this family, and {shown_value(value)} could change what is counted; {near}"
                f"if it changes nothing, --ignore {name}",
            )
        elif not any(_same(value, candidate) for candidate in known[0]):
            expected_values = " or ".join(map(shown_value, known[0]))
            self.refuse(name, f"expected {expected_values}, got {shown_value(value)}: {known[1]}")

    def family(self) -> Family:
        """The family; fields of a wrong type are errors, and have their defaults."""
        while True:
            try:
                return msgspec.convert(self.values, self.type)
            except msgspec.ValidationError as error:
                text, end = split_path(str(error))
                path = path_of(end)
                if not path:  # a missing field, but every field has a default
                    raise AssertionError(text) from None
                self.errors.append(self._type_error(text, path))
                del self.values[str(path[0])]

    def _type_error(self, text: str, path: tuple[str | int, ...]) -> SpecError:
        """The validator's message with file, line and field, in the grammar's words."""
        name = name_in_file(str(path[0]), self.type, self.file)
        value = value_at(self.values, path)
        choices = _choices(self.type, str(path[0]))
        expectation = f"expected {', '.join(choices)}" if choices else expected(text, value)
        near = nearest(value, choices) if isinstance(value, str) and choices else ""
        near = f"; {near}" if near.startswith("did you mean") else ""
        line = f":{self.file.lines[name]}" if name in self.file.lines else ""
        field = path_text((name, *path[1:]))
        return SpecError(f"{self.file.name}{line} {field}: {expectation}, got {shown_value(value)}{near}")


def _contradictions(family: Family, file: ConfigFile) -> Iterator[SpecError]:
    """Errors of fields that contradict each other."""
    try:
        family.check()
    except ComponentError as error:
        yield file.error(name_in_file(error.field, type(family), file), error.message)
        return
    for mirror, name in family.mirrors.items():
        value, actual = file.values.get(mirror), getattr(family, name)
        if value is not None and not _same(value, actual):
            yield file.error(mirror, f"expected {name}, which is {shown_value(actual)}, got {shown_value(value)}")
            return


def _line_of(error: SpecError, file: ConfigFile) -> int:
    """The line number in an error's message."""
    digits = re.match(r":(\d+)", str(error).removeprefix(file.name))
    return int(digits[1]) if digits else 0


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


def _choices(family_type: type[Family], name: str) -> list[str]:
    """The allowed words of a field; empty if it allows anything else."""
    struct = type_info(family_type)
    assert isinstance(struct, StructType)  # noqa: S101 - for the type checker: a family is a struct
    field_type = next(field.type for field in struct.fields if field.name == name)
    types = field_type.types if isinstance(field_type, UnionType) else (field_type,)
    return [str(word) for literal in types if isinstance(literal, LiteralType) for word in literal.values]
