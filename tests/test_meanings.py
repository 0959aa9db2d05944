"""Every field of a spec says what it means, once: in the schema, in the docs and in errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from xfcost.ledger.errors import SpecError
from xfcost.spec.load import load
from xfcost.spec.schema import clause, json_schema, meanings

LONGEST = 160


def properties() -> Iterator[tuple[str, str, str | None]]:
    """(definition, property, description) of all properties in the schema."""
    for name, definition in json_schema()["$defs"].items():
        for key, found in definition.get("properties", {}).items():
            yield name, key, found.get("description")


def test_every_property_of_the_schema_says_what_it_means():
    found = list(properties())
    assert len(found) > 600
    assert [(name, key) for name, key, text in found if not text] == []


def test_a_meaning_is_a_short_sentence():
    for name, key, text in properties():
        assert text is not None
        assert len(text) <= LONGEST, (name, key)
        assert text.strip(" .").lower().replace(" ", "_") != key, (name, key)
        if key != "kind":  # the first line of its class, which may be a formula
            assert text[0].isupper() or text[0] == "`", (name, key, text)
            assert text.endswith((".", ".)")), (name, key, text)


class Base(msgspec.Struct, tag_field="kind", tag="base"):
    """The base."""

    width: int = 1
    """The width."""
    depth: int = 1
    """The depth."""
    bare: int = 1


class Derived(Base, tag="derived"):
    """The derived one.

    More of it.
    """

    width: int = 2
    depth: int = 2
    """Another depth,
    on two lines."""
    renamed: int = msgspec.field(default=1, name="written")
    """The renamed field."""


def test_a_field_takes_the_sentence_of_the_nearest_class_that_has_one():
    assert meanings(Base) == {"kind": "The base.", "width": "The width.", "depth": "The depth."}
    assert meanings(Derived) == {
        "kind": "The derived one.",
        "width": "The width.",
        "depth": "Another depth, on two lines.",
        "written": "The renamed field.",
    }


@pytest.mark.parametrize(
    ("meaning", "within"),
    [
        ("Head width d_k; d/h by default.", "head width d_k"),
        ("A learned table. Every layer has its own.", "a learned table"),
        ("RMS norm of the output.", "RMS norm of the output"),
        ("`gelu` is exact.", "`gelu` is exact"),
    ],
)
def test_a_meaning_within_a_message(meaning, within):
    assert clause(meaning) == within


TOY = """\
name: toy
input: {kind: tokens, vocabulary: 100, length: 8}
embed: [{kind: token}]
stages: [{dim: 8, depth: 1, block: [{kind: full, heads: 2}]}]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "heads: 2",
            "heads: two",
            "toy.yaml:4 stages[0].block[0].heads: expected a whole number, got 'two' (number of attention heads h)",
        ),
        (
            ", heads: 2",
            "",
            "toy.yaml:4 stages[0].block[0]: the key 'heads' is missing (number of attention heads h)",
        ),
        (
            "length: 8",
            "length: [8]",
            "toy.yaml:2 input.length: expected a whole number, got [8] (sequence length N, unless `--N` sets it)",
        ),
        ("length: 8", "lenght: 8", "toy.yaml:2 input.lenght: unknown key 'lenght'; did you mean 'length'?"),
    ],
)
def test_an_error_says_what_the_field_means(tmp_path: Path, monkeypatch, old, new, said):
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text(TOY.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load("toy.yaml")
    assert str(caught.value) == said
