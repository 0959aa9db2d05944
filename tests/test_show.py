"""`xfcost show`: the spec that `extends` and `set` resolve to, with every default, or as its files are written."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from xfcost.spec.grammar import Spec
from xfcost.spec.load import lineage, load, preset_files, preset_names
from xfcost.spec.show import _ORDER, expanded_yaml, full_yaml

CHILD = """\
    extends: swin-t
    name: Two sizes
    notes: of nobody's paper
    # windows of 8
    input: {size: 256}
    set:
      "stages.each.depth": [1, 1, 2, 1]
      stages.**.size: 8
      stages.3.pattern: [[{kind: full, heads: 24}, {kind: mlp, ratio: 4}]]
    published: [{macs: 4512345678.0, source: "nobody 2020, p. 3"}, {params: 28e6, source: here}]
    """
EXPANDED = """\
# Expanded: child.yaml over swin-t.yaml. As written, with comments: --file
name: Two sizes
paper: Liu et al. 2021, arXiv:2103.14030
notes: of nobody's paper
input: {kind: image, size: 256, channels: 3}
embed: [{kind: patch, size: 4, norm: layer_norm}]
stages:
  - dim: 96
    depth: 1
    pattern:
      - [{kind: window, size: 8, heads: 3}, {kind: mlp, ratio: 4}]
      - [{kind: window, size: 8, heads: 3, shift: 3}, {kind: mlp, ratio: 4}]
  - enter: [{kind: patch_merging}]
    dim: 192
    depth: 1
    pattern:
      - [{kind: window, size: 8, heads: 6}, {kind: mlp, ratio: 4}]
      - [{kind: window, size: 8, heads: 6, shift: 3}, {kind: mlp, ratio: 4}]
  - enter: [{kind: patch_merging}]
    dim: 384
    depth: 2
    pattern:
      - [{kind: window, size: 8, heads: 12}, {kind: mlp, ratio: 4}]
      - [{kind: window, size: 8, heads: 12, shift: 3}, {kind: mlp, ratio: 4}]
  - enter: [{kind: patch_merging}]
    dim: 768
    depth: 1
    pattern:
      - [{kind: full, heads: 24}, {kind: mlp, ratio: 4}]
head: {kind: classifier, pool: mean, norm: layer_norm, classes: 1000}
published: [{macs: 4512345678.0, source: "nobody 2020, p. 3"}, {params: 28.0e+6, source: here}]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, so that files have short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> str:
    Path(name).write_text(dedent(text), encoding="utf-8")
    return name


def loaded_again(text: str) -> Spec:
    return load(write("again.yaml", text)).spec


def alone(name: str) -> Spec:
    return msgspec.structs.replace(load(name).spec, extends=None, set={})


def keys(text: str) -> list[str]:
    return re.findall(r"^([a-z]+):", text, re.MULTILINE)


def test_the_expanded_text_of_every_preset_is_the_same_model() -> None:
    for name in preset_names():
        text = expanded_yaml(name)
        assert loaded_again(text) == alone(name), name
        assert not {"extends", "set"} & set(keys(text)), name


@pytest.mark.parametrize("name", {file.parent: name for name, file in preset_files().items()}.values())
def test_the_full_text_is_the_same_model_with_every_default(name: str) -> None:
    text = full_yaml(name)
    assert loaded_again(text) == alone(name)
    assert set(keys(text)) >= set(keys(expanded_yaml(name)))
    assert not re.search(r": (null|\[\])", text)


def test_only_the_full_text_has_what_no_file_says() -> None:
    for default in ("shift: 0", "act: gelu", "form: ordinary"):
        assert default in full_yaml("swin-s")
        assert default not in expanded_yaml("swin-s")


def test_it_reads_as_a_preset_does() -> None:
    assert expanded_yaml(write("child.yaml", CHILD)) == EXPANDED


def test_it_has_the_keys_of_a_spec_in_one_order() -> None:
    assert {*_ORDER, "extends", "set"} == {field.name for field in msgspec.structs.fields(Spec)}


def test_a_file_that_stands_alone_is_shown_as_it_is_written() -> None:
    written = preset_files()["swin-t"].read_text(encoding="utf-8")
    assert expanded_yaml("swin-t") == written
    assert "# W-MSA and SW-MSA in turn" in written


def test_a_file_that_only_sets_is_expanded() -> None:
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
def test_null_stays_where_it_is_not_the_default(shown: Any, setting: str, value: str | None) -> None:
    name = write("variant.yaml", f"extends: common-full\nset:\n  {setting}\n")
    assert loaded_again(shown(name)) == alone(name)
    assert re.findall(r"\w+: null", shown(name)) == ([value] if value else [])


@pytest.mark.parametrize("shown", [expanded_yaml, full_yaml])
def test_what_a_terminal_would_obey_is_escaped_and_read_back(shown: Any) -> None:
    bad = r"\x1b[2J\u202egnp.exe\x7f \U000e0041" + " and more words" * 12
    name = write("bad.yaml", f'extends: vit\nnotes: "{bad}"\nset: {{stages.0.depth: 3}}\n')
    text = shown(name)
    assert text.replace("\n", "").isprintable()
    assert loaded_again(text) == alone(name)
    assert "\U000e0041 and more words and" in (load(name).spec.notes or "")


def test_the_files_are_those_of_the_lineage() -> None:
    write("child.yaml", CHILD)
    assert [one.shown for one in lineage("child.yaml")] == ["child.yaml", "swin-t.yaml"]
    assert "# windows of 8" in lineage("child.yaml")[0].text
