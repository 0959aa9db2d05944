"""Every field of a kind changes the rows that its case lists, and no other: which there are, what they cost.

`cases/flags.yaml` lists those of layers, of bases, and those that several kinds have in common.

The costs themselves are those of the formulas in docstrings (`test_written.py`).
"""

from pathlib import Path

import msgspec
import pytest

from cases import CASES
from test_written import COMPONENTS, examples
from xfcost.formulas.component import ComponentError, Residual
from xfcost.program.residual import component_rows

FIGURES = ("macs", "params", "flops", "attention_entries", "moved")
OF_TYPE = {
    "NoneType": [None], "BoolType": [False, True], "IntType": [1, 2, 3, 8], "FloatType": [0.5, 2.0], "StrType": ["one"],
    "StructType": [Residual(), Residual(place="post", norm="rms_norm")],  # other structs are those of the examples
}  # fmt: skip
MOST_PLACES = 40  # of a kind
FIELDS = [(kind, field) for kind in COMPONENTS for field in msgspec.structs.fields(kind)]
TABLES = msgspec.yaml.decode((Path(__file__).parent / "cases/flags.yaml").read_bytes()) | {
    kind.__name__: case.flags for kind, case in CASES.items()
}
# (class or `common`, field) -> its rows, or `nothing` and what it changes instead
LISTED = {
    (owner, field): rows
    for owner, lines in TABLES.items()
    for fields, rows in lines.items()
    for field in fields.split()
}


def owner_of(kind, field):
    """Where the table lists a field: under the class, else one of its bases, else in common."""
    owners = ((owner, field) for owner in (*(base.__name__ for base in kind.__mro__), "common"))
    return next((owner for owner in owners if owner in LISTED), None)


def of_type(field):
    """Values of its type: all of a literal or flag, some numbers, None where it may be."""
    info = msgspec.inspect.type_info(field.type)
    for one in getattr(info, "types", (info,)):
        yield from getattr(one, "values", OF_TYPE.get(type(one).__name__, []))


def beside(value):
    """Values that differ from it in one place: a number, an item of a list, a field of a struct."""
    if type(value) is int:
        yield from (value + 1, 2 * value)
    elif isinstance(value, list):
        yield from ([*value[:at], other, *value[at + 1 :]] for at, one in enumerate(value) for other in beside(one))
    elif isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            others = (*of_type(field), *beside(getattr(value, field.name)))
            yield from (msgspec.structs.replace(value, **{field.name: other}) for other in others)


def rows(component, place):
    return {row.path: tuple(getattr(row, figure) for figure in FIGURES) for row in component_rows(component, place)}


def changed(kind, field):
    """Rows that a field changes in some example, and all that there are.

    What the schema or `check` refuses is no value. Other numbers of heads whose width is given change all widths, as
    `head_dim` does; they are left out.
    """
    places = [one for one in examples(kind) if not one[1].fused]
    places = places[:: 1 + len(places) // MOST_PLACES]
    values = [*of_type(field), *(getattr(component, field.name) for component, _ in places)]
    values = [value for at, value in enumerate(values) if value not in values[:at] or isinstance(value, bool)]
    found, every = set(), set()
    for component, place in places:
        own, before = getattr(component, field.name), rows(component, place)
        every |= {*before}
        left_out = field.name == "heads" and getattr(component, "head_dim", None) is not None
        for value in () if left_out else (*values, *beside(own)):
            try:
                other = msgspec.structs.replace(component, **{field.name: value})
                other = msgspec.convert(msgspec.to_builtins(other), kind)
                other.check(place)
            except (msgspec.ValidationError, ComponentError):
                continue
            after = rows(other, place)
            every |= {*after}
            found |= {path for path in before | after if before.get(path) != after.get(path)}
    return found, every


def matching(words, paths):
    """Those that are a word or end with it (`global_scores` with `scores`), or that are the word behind a ^."""
    return {path for path in paths if any(f"_{path}".endswith(f"_{word}") or f"^{path}" == word for word in words)}


def listed(kind, field, every):
    """Of all rows those that the tables list for a field, and its line there."""
    owner = owner_of(kind, field.name)
    text = "" if owner is None else LISTED[owner]
    if text.startswith("nothing"):
        return set(), text
    named = every if text == "all" else matching(text.removeprefix("all but ").split(), every)
    return every - named if text.startswith("all but ") else named, text


def as_written(kind):
    """`flags` of its case: what its fields change that others' of that name do not."""
    lines = {}
    for field in msgspec.structs.fields(kind):
        found, every = changed(kind, field)
        if owner_of(kind, field.name) == (kind.__name__, field.name) or listed(kind, field, every)[0] != found:
            named, start = (found, "") if len(found) <= len(every) / 2 else (every - found, "all but ")
            words = sorted(path if matching([path], every) <= named else f"^{path}" for path in named)
            lines[field.name] = f"{start}{' '.join(words)}".removesuffix(" but ") or "nothing (…)"
    return f"flags={lines}"


def name(value):
    return str(getattr(value, "name", None) or value.__name__)


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=name)
def test_a_field_changes_exactly_its_rows(kind, field):
    found, every = changed(kind, field)
    expected, text = listed(kind, field, every)
    where = f"{kind.__name__}.{field.name}"
    assert found == expected, (
        f"{where}: changed, not listed: {found - expected}; listed, not changed: {expected - found}; of all fields: "
        f"{as_written(kind)}"
    )
    assert found or text.startswith("nothing"), f"{where} changes no row; list `nothing (what it changes instead)`"
    if found and owner_of(kind, field.name) == (kind.__name__, field.name) and text != "all":
        unknown = [word for word in text.removeprefix("all but ").split() if not matching([word], every)]
        assert not unknown, f"{where}: no row of an example's forward pass is {unknown}; a decode step's are not listed"


def test_the_table_lists_only_fields():
    assert {*LISTED} == {owner_of(kind, field.name) for kind, field in FIELDS} - {None}
