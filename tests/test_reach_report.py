"""`xfcost reach`: its table, its other formats, its picture, and what it refuses."""

import json

import numpy as np
import pytest

import xfcost
from helpers import error_of, stdout_of, table_of, xf
from xfcost.report.reach_figure import _coarser, _panel


def test_the_answer_comes_first_then_a_line_per_block():
    done = xf("reach", "swin-t", "--size", 224)
    assert done.stderr == ""
    assert done.stdout.splitlines()[:7] == [
        "Swin-T   3,136 (56×56) tokens",
        "every token depends on every other after block 7 of 12",
        "",
        "no.  block              made of        tokens  smallest  median  largest   share",
        "  1  stage 1 · block 1  W-MSA           3,136        49      49       49   1.6 %",
        "  2  stage 1 · block 2  SW-MSA          3,136        49     196      196   6.2 %",
        "     stage 2 · enter    patch merging     784        49     196      441   6.2 %",
    ]


def test_blocks_that_say_the_same_are_one_line():
    lines = xf("reach", "gpt2").stdout.splitlines()
    assert lines[1] == "every token depends on every earlier one after block 1 of 12"
    assert lines[4].startswith("stage 1 · blocks 1–12  Causal self-attention ")
    assert "all earlier" in lines[4]
    assert len(lines) == 5


def test_never_is_said_with_what_was_met():
    text = xf("reach", "resnet-50").stdout
    assert "after all 16 blocks a token depends on 45,796 to 50,176 of 50,176 pixels" in " ".join(text.split())
    assert "not every token depends on every pixel" in text
    assert "cuts it off: 427×427 pixels, wider than the input's 224×224" in " ".join(text.split())


def test_an_encoder_decoder_has_an_answer_per_stream_and_a_line_per_input():
    lines = xf("reach", "transformer-base", "--N", 8).stdout.splitlines()
    assert lines[1:3] == [
        "encoder: every token depends on every other after block 1 of 6",
        "decoder: every token depends on every earlier one and all encoder tokens after block 1 of 6",
    ]
    assert lines[4].split()[:4] == ["block", "made", "of", "input"]
    assert sum("decoder · blocks 1–6" in line for line in lines) == 2


def test_a_recurrence_is_said_to_take_steps():
    assert "a recurrent layer takes 512 sequential steps" in xf("reach", "mamba-130m").stdout


@pytest.mark.parametrize("columns", [80, 100])
def test_it_fits(columns: int):
    for line in xf("reach", "swin-t", "cvt-13", "t5-small", COLUMNS=str(columns)).stdout.splitlines():
        assert len(line) <= columns


def test_json_and_csv_have_every_block():
    told = json.loads(xf("reach", "swin-t", "gpt2", "--format", "json").stdout)
    swin, gpt2 = told["systems"]
    assert (swin["path_length"], swin["causal"], gpt2["path_length"], gpt2["causal"]) == (7, False, 1, True)
    assert swin["inputs"] == [{"name": "input", "unit": "token", "sides": [56, 56]}]
    assert len(swin["blocks"]) == 15
    assert swin["blocks"][1]["median"] == 196
    assert sum(swin["maps"][0]["reached"].values()) == 3136
    rows = table_of(xf("reach", "swin-t", "gpt2", "--format", "csv").stdout)
    assert len(rows) == 15 + 12
    assert {row["system"] for row in rows} == {"Swin-T", "GPT-2 (124M)"}
    assert rows[1] | {"share": ""} == {
        "system": "Swin-T", "block": "stage 1 · block 2", "path": "stages.0.pattern.1", "stream": "input",
        "number": "2", "kinds": "SW-MSA", "tokens": "3136", "input": "input", "units": "3136", "smallest": "49",
        "median": "196.0", "largest": "196", "share": "", "whole": "False", "sequential": "1",
    }  # fmt: skip


def test_markdown_and_latex_have_the_answer_and_the_lines():
    markdown = xf("reach", "swin-t", "--format", "markdown").stdout
    assert "every token depends on every other after block 7 of 12" in markdown
    assert "| stage 1 · block 2 | SW-MSA " in markdown
    latex = xf("reach", "swin-t", "--format", "latex").stdout
    assert "\\begin{tabular}" in latex
    assert "6.2" in latex


def test_the_ending_says_the_format(tmp_path):
    for name in ("a.json", "a.md", "a.svg", "a.png"):
        stdout_of("reach", "vit", "-o", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 100
    assert "every token depends on" in xf("reach", "vit", "-o", tmp_path / "b.svg").stdout  # a picture and the table
    assert xf("reach", "vit", "-o", tmp_path / "a.gif").returncode == 2
    assert "already exists" in xf("reach", "vit", "-o", tmp_path / "a.svg").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["swin-t", "--token", "56,0"],
         "error: --token 56,0: outside the grid of 56×56 tokens; expected 0,0 to 55,55\n"),
        (["gpt2", "--token", "1,2"],
         "error: --token 1,2: the tokens are on 1024; expected one number, as in --token 512\n"),
        (["gpt2", "--token", "last"], "error: --token last: expected whole numbers"),
        (["no-such-preset"], "error: "),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(words: list[str], message: str):
    said = error_of("reach", *words)
    assert said.startswith(message)
    assert said.count("\n") == 1


def test_a_map_has_the_number_of_the_block():
    found = xfcost.reach("swin-t", token=(3, 3))
    panel = _panel(found, found.maps[0])
    assert panel.cells.shape == (56, 56)
    assert set(panel.cells[:7, :7].ravel()) == {0, 1}
    assert panel.cells[3, 3] == 0
    assert (panel.cells[13, 13], panel.cells[20, 20]) == (2, 3)  # four windows; then a window of merged tokens
    assert [label for _, label, _ in panel.blocks] == [
        f"block {number}" for number in range(1, int(panel.cells.max()) + 1)
    ]
    assert panel.token == (3, 3)


def test_what_is_too_large_is_drawn_coarser_and_said():
    found = xfcost.reach("mamba-130m", N=2000)
    panel = _panel(found, found.maps[0])
    assert panel.cells.shape == (1, 500)
    assert panel.notes == ("Mamba-130M: drawn coarser, a cell is 4 tokens in the colour of the first of them",)
    cells = np.array([[3, -1, 2], [1, -1, -1], [-1, -1, 5]])
    assert _coarser(cells, 2).tolist() == [[1, 2], [-1, 5]]


def test_of_a_volume_the_plane_of_the_token_is_drawn():
    found = xfcost.reach("mvit-b-16x4", size=64)
    panel = _panel(found, found.maps[0])
    assert panel.cells.ndim == 2
    assert any("the plane of the token" in note for note in panel.notes)
