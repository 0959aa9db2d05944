"""`xfcost reach`: its table, its other formats, its picture, and what it refuses."""

import json

import numpy as np

import xfcost
from helpers import stdout_of, table_of, xf
from xfcost.questions.reach.figure import _coarser, _mark, _panel


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


def test_the_ending_says_the_format(tmp_path):
    for name in ("a.json", "a.md", "a.svg", "a.png"):
        stdout_of("reach", "vit", "-o", tmp_path / name)
        assert (tmp_path / name).stat().st_size > 100
    assert stdout_of("reach", "vit", "-o", tmp_path / "b.svg")  # a picture and the table
    assert xf("reach", "vit", "-o", tmp_path / "a.gif").returncode == 2


def test_a_map_has_the_number_of_the_block():
    found = xfcost.reach("swin-t", token=(3, 3))
    panel = _panel(found, found.maps[0])
    assert panel.cells.shape == (56, 56)
    assert set(panel.cells[:7, :7].ravel()) == {0, 1}
    assert panel.cells[3, 3] == 0
    assert (panel.cells[13, 13], panel.cells[20, 20]) == (2, 3)  # four windows; then a window of merged tokens
    assert [label for _, label, _ in panel.blocks] == [
        f"stage {1 + (number > 2) + (number > 4)} · block {number}" for number in range(1, int(panel.cells.max()) + 1)
    ]
    assert panel.token == (3, 3)


def test_the_mark_is_inside_the_window_of_its_token():
    """Cells 28 to 34 are the token's window; a mark of 2.5 cells around its first one would begin outside."""
    cells = np.full((56, 56), -1)
    cells[28:35, 28:35] = 1
    mark = _mark(cells, (28, 28))
    left, bottom, right, top = mark.get_bbox().extents
    assert (left, bottom) == (27.5, 27.5)
    assert right == top == 27.5 + 0.045 * 56
    middle = _mark(cells, (31, 31)).get_bbox()
    assert ((middle.x0 + middle.x1) / 2, (middle.y0 + middle.y1) / 2) == (31, 31)


def test_what_is_too_large_is_drawn_coarser_and_said():
    found = xfcost.reach("mamba-130m", N=2000)
    panel = _panel(found, found.maps[0])
    assert panel.cells.shape == (1, 500)
    cells = np.array([[3, -1, 2], [1, -1, -1], [-1, -1, 5]])
    assert _coarser(cells, 2).tolist() == [[1, 2], [-1, 5]]


def test_of_a_volume_the_plane_of_the_token_is_drawn():
    found = xfcost.reach("mvit-b-16x4", size=64)
    panel = _panel(found, found.maps[0])
    assert panel.cells.ndim == 2
    assert any("the plane of the token" in note for note in panel.notes)
