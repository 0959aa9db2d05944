"""The written lists of kinds, and fields that hold a component of any kind of a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Union

import msgspec
import pytest

import xfcost
from xfcost.formulas.component import tag_of
from xfcost.formulas.kinds import Kinds
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.mechanisms import MECHANISMS
from xfcost.mechanisms.full import Full
from xfcost.spec.grammar import COMPONENT_FIELDS, AnySubLayer, OneOf, Spec, converted
from xfcost.spec.grammar_errors import spec_error
from xfcost.spec.reader import Source
from xfcost.torch_models.modules import MODULES

PACKAGE = Path(xfcost.__file__).parent
LISTS = (MECHANISMS, EMBEDS, ENTERS, SUBLAYERS, HEADS)


@pytest.mark.parametrize("kinds", LISTS, ids=["MECHANISMS", "EMBEDS", "ENTERS", "SUBLAYERS", "HEADS"])
def test_a_kind_is_its_class_s_tag_and_has_the_module_of_its_line(kinds: Kinds[Any]) -> None:
    for kind, component in kinds.items():
        assert tag_of(component) == kind
        module = MODULES[component]
        folders = kinds.package, kinds.package.replace("xfcost", "xfcost.torch_models")
        for found, folder, name in zip((component, module), folders, kinds.names[kind], strict=True):
            assert f"{found.__module__}:{found.__name__}" == f"{folder}.{name}"


@pytest.mark.parametrize("folder", ["mechanisms", "layers"])
def test_the_folders_of_kinds_hold_what_the_lists_name_and_nothing_else(folder: str) -> None:
    lines = [names for kinds in LISTS if kinds.package == f"xfcost.{folder}" for names in kinds.names.values()]
    for place, written in zip(
        (PACKAGE / folder, PACKAGE / "torch_models" / folder), zip(*lines, strict=True), strict=True
    ):
        assert {file.stem for file in place.glob("*.py")} == {name.partition(":")[0] for name in written} | {"__init__"}


SPEC = {"name": "x", "input": {"kind": "vectors", "channels": 8}}
WRONG: list[Any] = [
    5,
    "full",
    [],
    {},
    {"heads": 2},
    {"kind": "ful"},
    {"kind": 3},
    {"kind": None},
    {"kind": ["full"]},
    {"kind": "full"},
    {"kind": "full", "heads": "two"},
    {"kind": "full", "heads": 2, "hands": 3},
    {"kind": "full", "heads": 2, "a - at `$.b`": 3},
    {"kind": "full", "heads": 2, "residual": {"norm": "no"}},
    {"kind": "moe", "experts": 2, "active": 1, "expert": {"kind": "mpl"}},
    {"kind": "moe", "experts": 2, "active": 1, "expert": {"kind": "mlp", "act": "no"}},
]


@pytest.mark.parametrize("value", WRONG, ids=str)
def test_a_bad_component_is_refused_as_by_a_union_of_all_classes(value: Any) -> None:
    union = Union[tuple(AnySubLayer.components())]  # type: ignore[attr-defined] # noqa: UP007 - made of a list
    place = ("stages", 0, "block", 0)
    spec = {**SPEC, "stages": [{"dim": 8, "depth": 1, "block": [value]}]}
    with pytest.raises(msgspec.ValidationError) as plain:
        msgspec.convert(value, union)
    with pytest.raises(msgspec.ValidationError) as ours:
        converted(spec, Spec)
    expected = spec_error(str(plain.value), spec, Source("x"), place)
    assert str(spec_error(str(ours.value), spec, Source("x"))) == str(expected)


def test_both_parts_of_a_path_are_one() -> None:
    stage = {"dim": 8, "depth": 1, "block": [{"kind": "full", "heads": "two"}]}
    spec = {**SPEC, "stages": [stage]}
    with pytest.raises(msgspec.ValidationError, match=r"got `str` - at `\$\.stages\[0\]\.block\[0\]\.heads`$"):
        converted(spec, Spec)


def test_a_field_knows_its_kinds() -> None:
    assert all(isinstance(field, OneOf) for field in COMPONENT_FIELDS)
    assert AnySubLayer.kinds() == [*MECHANISMS, *SUBLAYERS]  # type: ignore[attr-defined]
    assert AnySubLayer.component("full") is Full  # type: ignore[attr-defined]
    assert AnySubLayer.component("patch") is None  # type: ignore[attr-defined]
