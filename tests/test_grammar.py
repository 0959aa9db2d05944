"""The grammar's kinds and fields: their classes, letters, meanings, and the text of a spec."""

import functools
import re
from pathlib import Path
from typing import Union

import msgspec
import pytest

import xfcost
from cases.layers import LAYER_CASES
from strategies import cases
from xfcost.formulas.component import tag_of
from xfcost.formulas.letters import LetteredInt, letter_of
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.operation import COUNTED
from xfcost.mechanisms import MECHANISMS
from xfcost.program.residual import component_rows
from xfcost.spec.grammar import AnySubLayer, Spec, converted
from xfcost.spec.grammar_errors import spec_error
from xfcost.spec.load import load, preset_files, preset_names
from xfcost.spec.reader import Source
from xfcost.spec.schema import json_schema
from xfcost.spec.show import _ORDER, expanded_yaml, full_yaml

# The written lists of kinds, and fields that hold a component of any kind of a list ───────────────────────────────────

PACKAGE = Path(xfcost.__file__).parent
LISTS = (MECHANISMS, EMBEDS, ENTERS, SUBLAYERS, HEADS)


@pytest.mark.parametrize("kinds", LISTS, ids=["MECHANISMS", "EMBEDS", "ENTERS", "SUBLAYERS", "HEADS"])
def test_a_kind_is_its_class_s_tag_and_stands_in_the_file_of_its_line(kinds):
    for kind, component in kinds.items():
        assert tag_of(component) == kind
        assert f"{component.__module__}:{component.__name__}" == f"{kinds.package}.{kinds.names[kind]}"


@pytest.mark.parametrize("folder", ["mechanisms", "layers"])
def test_the_folders_of_kinds_hold_what_the_lists_name_and_nothing_else(folder):
    lines = [name for kinds in LISTS if kinds.package == f"xfcost.{folder}" for name in kinds.names.values()]
    assert {file.stem for file in (PACKAGE / folder).glob("*.py")} == {name.partition(":")[0] for name in lines} | {
        "__init__"
    }


SPEC = {"name": "x", "input": {"kind": "vectors", "channels": 8}}
WRONG = [
    5, "full", [], {}, {"heads": 2}, {"kind": "ful"}, {"kind": 3}, {"kind": None}, {"kind": ["full"]}, {"kind": "full"},
    {"kind": "full", "heads": "two"}, {"kind": "full", "heads": 2, "hands": 3},
    {"kind": "full", "heads": 2, "a - at `$.b`": 3}, {"kind": "full", "heads": 2, "residual": {"norm": "no"}},
    {"kind": "moe", "experts": 2, "active": 1, "expert": {"kind": "mpl"}},
    {"kind": "moe", "experts": 2, "active": 1, "expert": {"kind": "mlp", "act": "no"}},
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_a_bad_component_is_refused_as_by_a_union_of_all_classes(value):
    union = Union[tuple(AnySubLayer.components())]  # noqa: UP007 - made of a list
    place = ("stages", 0, "block", 0)
    spec = {**SPEC, "stages": [{"dim": 8, "depth": 1, "block": [value]}]}
    with pytest.raises(msgspec.ValidationError) as plain:
        msgspec.convert(value, union)
    with pytest.raises(msgspec.ValidationError) as ours:
        converted(spec, Spec)
    expected = spec_error(str(plain.value), spec, Source("x"), place)
    assert str(spec_error(str(ours.value), spec, Source("x"))) == str(expected)


def test_both_parts_of_a_path_are_one():
    stage = {"dim": 8, "depth": 1, "block": [{"kind": "full", "heads": "two"}]}
    spec = {**SPEC, "stages": [stage]}
    with pytest.raises(msgspec.ValidationError, match=r"got `str` - at `\$\.stages\[0\]\.block\[0\]\.heads`$"):
        converted(spec, Spec)


# Every whole number in a spec that changes what a row costs has a letter in orders, or is declared a constant ─────────

PLACES = {}
for one in cases(fused=(False,)):
    PLACES.setdefault(type(one.component), []).append((one.component, one.place))
for one in LAYER_CASES:
    PLACES.setdefault(type(one.layer), []).append((one.layer, one.place))
# Neither has a letter in the source, nor is it declared a constant there.
UNDECLARED = {"moe": {"groups.count", "shared.count"}}


def changed(struct):
    """(path of a field, the struct with another whole number there), of every field that takes one."""
    for field in struct.__struct_fields__:
        value = getattr(struct, field)
        if isinstance(value, msgspec.Struct):
            for path, other in changed(value):
                yield [field, *path], msgspec.structs.replace(struct, **{field: other})
        for other in others(value):
            try:
                found = msgspec.convert(msgspec.to_builtins(struct) | {field: other}, type(struct))
            except msgspec.ValidationError:  # another type's field
                continue
            if type(getattr(found, field)) is type(other):  # and no float that a whole number was taken for
                yield [field], found


def others(value):
    """Other whole numbers, or lists of them; None may stand for either."""
    if isinstance(value, list):
        return [[one + 1 for one in value], [one * 2 for one in value]] if value and type(value[0]) is int else []
    if value is None:
        return [1, 2, 3, [2], [2, 2]]
    return [value + 1, value + 2, value * 2, value - 1] if type(value) is int else []


def declared(component, place, path):
    """Has the field at the path a letter, or is it declared a constant?"""
    *inner, field = path
    struct = functools.reduce(getattr, inner, component.in_letters(place)[0])
    value = getattr(struct, field)
    return isinstance(value, LetteredInt) or bool(letter_of(type(struct), field, listed=isinstance(value, list)))


def costs(component, place):
    return {row.path: {name: getattr(row, name) for name in COUNTED} for row in component_rows(component, place)}


@pytest.mark.parametrize("kind", PLACES, ids=tag_of)
def test_a_number_that_changes_a_cost_has_a_letter_or_is_a_constant(kind):
    missing = {}
    for component, place in PLACES[kind]:
        before = costs(component, place)
        for path, other in changed(component):
            try:
                other.check(place)
                after = costs(other, place)
            except ComponentError:
                continue
            if after == before or declared(other, place, path):
                continue
            row = next((path for path in before if before[path] != after.get(path)), "rows")
            missing[".".join(path)] = f"{row}: {before.get(row)} becomes {after.get(row)} with {other} on {place.grid}"
    told = "expected a letter of each field, or Letter(None), which declares a constant; none stands there"
    assert missing.keys() == UNDECLARED.get(tag_of(kind), set()), (told, missing)


def test_every_kind_is_tried():
    layers = {layer for kinds in (EMBEDS, ENTERS, SUBLAYERS, HEADS) for layer in kinds.values()}
    assert set(PLACES) == layers | set(MECHANISMS.values())


# Every field of a spec says what it means, once: in the schema, in the docs and in errors ─────────────────────────────

LONGEST = 160


def properties():
    """(definition, property, description) of all properties in the schema."""
    for name, definition in json_schema()["$defs"].items():
        for key, found in definition.get("properties", {}).items():
            yield name, key, found.get("description")


def test_every_property_of_the_schema_says_what_it_means_in_a_short_sentence():
    found = list(properties())
    assert len(found) > 600
    for name, key, text in found:
        assert text, (name, key)
        assert len(text) <= LONGEST, (name, key)
        assert text.strip(" .").lower().replace(" ", "_") != key, (name, key)
        if key != "kind":  # the first line of its class, which may be a formula
            assert text[0].isupper() or text[0] == "`", (name, key, text)
            assert text.endswith((".", ".)")), (name, key, text)


# `xfcost show`: the spec that `extends` and `set` resolve to, with every default, or as its files are written ─────────

pytestmark = pytest.mark.usefixtures("here")


def write(name, text):
    Path(name).write_text(text, encoding="utf-8")
    return name


def loaded_again(text):
    return load(write("again.yaml", text)).spec


def alone(name):
    return msgspec.structs.replace(load(name).spec, extends=None, set={})


def keys(text):
    return re.findall(r"^([a-z]+):", text, re.MULTILINE)


def test_the_expanded_text_of_every_preset_is_the_same_model():
    for name in preset_names():
        text = expanded_yaml(name)
        assert loaded_again(text) == alone(name), name
        assert not {"extends", "set"} & set(keys(text)), name


@pytest.mark.parametrize("name", {file.parent: name for name, file in preset_files().items()}.values())
def test_the_full_text_is_the_same_model_with_every_default(name):
    text = full_yaml(name)
    assert loaded_again(text) == alone(name)
    assert set(keys(text)) >= set(keys(expanded_yaml(name)))
    assert not re.search(r": (null|\[\])", text)


def test_it_has_the_keys_of_a_spec_in_one_order():
    assert {*_ORDER, "extends", "set"} == {field.name for field in msgspec.structs.fields(Spec)}


def test_a_file_that_only_sets_is_expanded():
    text = preset_files()["vit-b16"].read_text(encoding="utf-8")
    name = write("set.yaml", text + "set: {stages.0.depth: 3}\n")
    assert expanded_yaml(name).startswith("# Expanded: set.yaml. As written")
    assert "depth: 3" in expanded_yaml(name)
    assert loaded_again(expanded_yaml(name)) == alone(name)


@pytest.mark.parametrize("shown", [expanded_yaml, full_yaml])
@pytest.mark.parametrize(
    ("setting", "value"),
    [("stages.0.block.0: {kind: nystrom, heads: 12, landmarks: 64, conv: null}", "conv: null"), ("paper: null", None)],
)
def test_null_stays_where_it_is_not_the_default(shown, setting, value):
    name = write("variant.yaml", f"extends: common-full\nset:\n  {setting}\n")
    assert loaded_again(shown(name)) == alone(name)
    assert re.findall(r"\w+: null", shown(name)) == ([value] if value else [])


@pytest.mark.parametrize("shown", [expanded_yaml, full_yaml])
def test_what_a_terminal_would_obey_is_escaped_and_read_back(shown):
    bad = r"\x1b[2J\u202egnp.exe\x7f \U000e0041" + " and more words" * 12
    name = write("bad.yaml", f'extends: vit\nnotes: "{bad}"\nset: {{stages.0.depth: 3}}\n')
    text = shown(name)
    assert text.replace("\n", "").isprintable()
    assert loaded_again(text) == alone(name)
    assert "\U000e0041 and more words and" in (load(name).spec.notes or "")
