"""`xfcost new`: a template of every preset is the preset, says what its keys mean, and is refused where it can't be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers import error_of, stdout_of, xf
from xfcost.counting.forward import count
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.spec.template import template

PRESETS = preset_names()


@pytest.mark.parametrize("name", [*PRESETS[::40], "vit", "swin", "t5-small", "llama3-8b", "mixtral-8x7b"])
def test_the_template_of_a_preset_costs_what_it_costs(name, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(template(name, "mine.yaml", "mine"), encoding="utf-8")
    mine, own = (count(place(load(spec), Run()), orders=False) for spec in (str(file), name))
    assert (mine.rows, mine.metadata.name) == (own.rows, "mine")


def test_a_key_says_what_it_means_once_and_its_defaults_are_comments():
    lines = template("swin", "mine.yaml", "mine").splitlines()
    assert sum("tokens by which windows are shifted" in line.lower() for line in lines) == 1
    assert any(line.lstrip().startswith("# score: dot ") for line in lines)
    assert not any(word in "\n".join(lines) for word in ("published:", "paper:", "et al."))


def test_the_command_writes_it_once_and_the_next_commands_take_it(tmp_path):
    assert xf("new", "mine.yaml", "--like", "gpt2", cwd=tmp_path).returncode == 0
    assert error_of("new", "mine.yaml", cwd=tmp_path).startswith("error: mine.yaml: already exists")
    checked = xf("check", "mine.yaml", cwd=tmp_path)
    assert (checked.returncode, checked.stdout.partition(";")[0]) == (0, "valid")
    assert "expected a name that ends in .yaml" in error_of("new", "mine.json", cwd=tmp_path)
    assert "expected a preset" in error_of("new", "a.yaml", "--like", "qwen3-32b", cwd=tmp_path)


def test_without_a_file_it_is_printed(tmp_path):
    printed = stdout_of("new", "--like", "gpt2")
    xf("new", "mine.yaml", "--like", "gpt2", cwd=tmp_path)
    assert printed == (tmp_path / "mine.yaml").read_text(encoding="utf-8")


def test_an_error_of_a_spec_ends_with_how_to_get_one(tmp_path):
    (tmp_path / "typo.yaml").write_text("name: x\nstages: [{dim: 64}]\nfoo: 2\n", encoding="utf-8")
    assert "\n  `xfcost new mine.yaml --like vit` writes" in error_of("check", "typo.yaml", cwd=tmp_path)
    assert "xfcost new" not in error_of("analyze", "vit", "--set", "stages.0.foo=1")


def test_a_spec_on_stdin():
    shown = xf("show", "vit").stdout
    command = [sys.executable, "-m", "xfcost", "analyze", "-", "--no-trace", "--json"]
    ran = subprocess.run(command, input=shown, capture_output=True, text=True, check=True, encoding="utf-8")
    assert '"macs": 22405742592' in ran.stdout
    empty = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert (empty.returncode, "stdin:1 is empty" in empty.stderr) == (2, True)
    large = subprocess.run(command, input="#" * 1_000_001, capture_output=True, text=True, check=False)
    assert (large.returncode, "stdin: is larger than 1,000,000 bytes" in large.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("heads: 8", "vit"),
        ("image_size: 224\nnum_classes: 10", "vit"),
        ("vocab_size: 100", "gpt2"),
        ("input: {kind: tokens, vocabulary: 9}", "gpt2"),
        ("vocab_size: 100\nmodel: {pooler: bert}", "bert-base"),
        ("input: {kind: tokens}\nblock: [{kind: full, causal: false}]\nhead: {kind: pooler}", "bert-base"),
        ("vocab_size: 9\nblock: [{kind: full, causal: true}]\nencoder: 1", "gpt2"),
        ("d_model: 64\nssm: {d_state: 16}", "mamba-130m"),
    ],
)
def test_the_preset_to_start_from_is_like_the_file(text, like, tmp_path):
    (tmp_path / "a.yaml").write_text(text)
    assert f"\n  `xfcost new mine.yaml --like {like}` writes" in error_of("check", "a.yaml", cwd=tmp_path)
