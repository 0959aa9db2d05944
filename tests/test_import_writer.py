"""The YAML that `xfcost import` writes: what is read back is what was written, and it looks like a preset."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hugging_face import CONFIGS
from xfcost.importing import import_config
from xfcost.importing.families import FAMILIES
from xfcost.spec.load import load
from xfcost.spec.reader import read
from xfcost.spec.writer import WIDTH, spec_text

KEYS = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029\x85\ufeff")
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(["no", "1e5", "null", "a: b", "a #b", "- a", "{a}", "a,", " a", "a ", "0x1f", "arXiv:1706.03762"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def full(value: Any) -> Any:
    """Without empty mappings and lists in block style, which no spec has."""
    if isinstance(value, dict):
        return {key: full(item) for key, item in value.items()} or {"a": 1}
    return ([full(item) for item in value] or [1]) if isinstance(value, list) else value


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=6).map(full), st.lists(TEXT, max_size=3))
def test_what_is_written_is_read(data: dict[str, Any], comments: list[str]) -> None:
    found, _ = read(spec_text(data, comments), "spec.yaml")
    assert found == data


@pytest.mark.parametrize("name", ["t5-small", "swin-tiny-patch4-window7-224", "mistral-7b-v0.1", "llama-3.1-405b"])
def test_any_reader_of_yaml_reads_a_spec(name: str) -> None:
    spec = import_config(CONFIGS / f"{name}.json")
    assert yaml.safe_load(spec.text) == spec.data
    assert all(len(line) <= WIDTH or "kind:" in line for line in spec.text.splitlines())


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        ("bert-base-uncased", "bert-base-mlm"),
        ("openai-gpt", "gpt1"),
        ("t5-small", "t5-small"),
        ("llama-2-7b", "llama2-7b"),
        ("llama-3-8b", "llama3-8b"),
        ("llama-3.1-405b", "llama3.1-405b"),
        ("swin-tiny-patch4-window7-224", "swin-t"),
        ("swinv2-tiny-patch4-window8-256", "swinv2-t-w8-256"),
        ("bloom-560m", "bloom-560m"),
        ("mamba-130m-hf", "mamba-130m"),
    ],
)
def test_a_public_model_s_config_gives_its_preset(config: str, preset: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(CONFIGS / f"{config}.json", tmp_path))
    file = tmp_path / "spec.yaml"
    file.write_text(import_config(path).text)
    ours, known = load(str(file)).spec, load(preset).spec
    assert (ours.stages, ours.encoder, ours.decoder) == (known.stages, known.encoder, known.decoder)
    assert (ours.embed, ours.head, ours.residual, ours.input) == (known.embed, known.head, known.residual, known.input)


def test_the_top_says_where_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "_name_or_path": "/home/me/models/mine\n"}))
    lines = import_config(path).text.splitlines()
    assert lines[0].startswith("# Made by `xfcost import` from ")
    assert "model_type gpt2, architecture GPT2LMHeadModel." in " ".join(line.lstrip("# ") for line in lines[:4])
    assert any(line.startswith("# Assumed: GPT2LMHeadModel; the config names no architectures") for line in lines)
    assert "name: mine (GPT2LMHeadModel)" in lines


def test_a_name_is_never_an_instruction(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for name in ("", "/", "\x1b[31mred", "a" * 500, "{x: 1}", "名前", "- x\n# y", 7, None):
        path.write_text(json.dumps({"model_type": "gpt2", "_name_or_path": name}))
        spec = import_config(path)
        assert read(spec.text, "spec.yaml")[0] == spec.data


def test_every_family_has_a_full_config() -> None:
    kinds = {json.loads(path.read_text())["model_type"] for path in CONFIGS.glob("*.json")}
    assert kinds == set(FAMILIES)
