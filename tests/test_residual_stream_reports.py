"""`xfcost stream`: its tables, matrices and pictures, the command and the API."""

import csv
import io
import json

import msgspec
import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

import xfcost
from helpers import xf
from residual_blocks import BLOCKS, spec_file
from xfcost.cli import app
from xfcost.ledger.errors import UsageError
from xfcost.ledger.residual_stream import ResidualStream, StreamStep, records
from xfcost.report.figure import look
from xfcost.report.residual_stream import document, panels
from xfcost.report.residual_stream_figure import depth_figure, matrix_figure, stream_bytes
from xfcost.torch_models.memory.shortage import Limit


@pytest.fixture(scope="module")
def tiny() -> ResidualStream:
    return xfcost.stream("tiny")


def text_of(found: ResidualStream) -> str:
    return document(found).text("table")


# ── reports ──


def test_the_terminal_shows_the_panels(tiny):
    text = text_of(tiny)
    for name in ("X", "ΔA(X)", "X₁", "ΔF(X₁)", "X₂"):
        assert name in text
    for step in tiny.steps:
        for matrix in (step.matrices.x, step.matrices.delta, step.matrices.out):
            for row in matrix:
                line = "".join(f"{one:>6.2f}" for one in row).replace("-0.00", " 0.00")
                assert line in text
    assert "mean over tokens of the L2 norm" in " ".join(text.split())
    assert f"the largest difference is {max(step.check.difference for step in tiny.steps):.2g}" in " ".join(
        text.split()
    )


@pytest.mark.parametrize("name", ["Conformer", "post-norm", "ResNet", "reversible", "no residual"])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(name, width, tmp_path):
    found = xfcost.stream(spec_file(tmp_path, BLOCKS[name][0]))
    console = Console(file=io.StringIO(), record=True, width=width, color_system=None)
    console.print(document(found).terminal(width))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    if width >= 80:
        assert "…" not in text
        assert all(f"{step.norm_out:.4g}" in text for step in found.steps)


def test_json_csv_and_the_frame_have_every_number(tiny):
    data = json.loads(document(tiny).text("json"))
    assert [step["norm_delta"] for step in data["sublayers"]] == [step.norm_delta for step in tiny.steps]
    assert data["sublayers"][1]["formula"] == "X₂ = X₁ + ΔF(X₁)"
    assert data["exact"] is True
    assert tiny.to_json() == document(tiny).text("json")
    rows = list(csv.DictReader(io.StringIO(document(tiny).text("csv"))))
    assert [float(row["share"]) for row in rows] == [step.share for step in tiny.steps]
    assert [row["changed_rows"] for row in rows] == ["4", "1"]
    assert list(tiny.to_frame().columns) == list(records(tiny)[0]) == list(rows[0])


@pytest.mark.parametrize("form", ["markdown", "latex", "table"])
def test_papers_get_a_table(form, tiny):
    text = document(tiny).text(form)
    assert "Self-attention" in text
    assert f"{tiny.steps[0].norm_delta:.4g}" in text


def test_a_notebook_shows_it(tiny):
    html = tiny._repr_html_()
    assert "<pre" in html
    assert "Self-attention" in html


def test_the_picture_of_a_small_model_has_every_number(tiny):
    with look():
        figure = matrix_figure(tiny, panels(tiny))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["X", "ΔA(X)", "X₁", "ΔF(X₁)", "X₂"]
    for axes, matrix in zip(figure.axes, [tiny.steps[0].matrices.x, tiny.steps[0].matrices.delta], strict=False):
        assert [one.get_text() for one in axes.texts] == [
            f"{one:.2f}".replace("-0.00", "0.00") for row in matrix for one in row
        ]
        (image,) = axes.images
        assert image.get_array().tolist() == [list(row) for row in matrix]
        assert image.norm.vmin == -image.norm.vmax  # white is zero
    assert stream_bytes(tiny, ".svg") == stream_bytes(tiny, ".svg")


def test_the_picture_of_a_larger_model_has_norms_and_cosines_over_depth(tmp_path):
    found = xfcost.stream(spec_file(tmp_path, BLOCKS["pre-norm"][0]))
    assert panels(found) == []
    with look():
        above, below = depth_figure(found).axes
    (line,) = above.lines
    assert list(line.get_ydata()) == [step.norm_out for step in found.steps]
    drawn = {(round(x), y) for points in below.collections for x, y in points.get_offsets()}
    assert drawn == {(place, step.cosine) for place, step in enumerate(found.steps)}


@pytest.mark.parametrize("name", ["Conformer", "ResNet", "reversible", "no residual", "LayerScale"])
def test_every_kind_of_block_is_drawn(name, tmp_path):
    assert stream_bytes(xfcost.stream(spec_file(tmp_path, BLOCKS[name][0])), ".svg").startswith(b"<?xml")


# ── the command and the API ──


def test_a_seed_is_a_model_and_leaves_torch_s_own_numbers_alone(tiny):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again, other = xfcost.stream("tiny"), xfcost.stream("tiny", seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert again.steps == tiny.steps
    assert other.steps != tiny.steps
    assert other.seed == 1


def test_size_n_dtype_and_settings_are_those_of_the_model(tmp_path):
    file = spec_file(tmp_path, BLOCKS["pre-norm"][0])
    found = xfcost.stream(file, size=16, settings=["stages.0.depth=1"], dtype="float64")
    assert [step.tokens for step in found.steps] == [4, 4]
    assert all(step.check.difference <= step.check.bound < 1e-14 for step in found.steps if step.check)


def test_the_command_writes_reports_and_pictures(tmp_path):
    for name, start in (("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a.csv", b"system,"), ("a.json", b"{")):
        done = CliRunner().invoke(app, ["stream", "tiny", "-o", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).read_bytes().startswith(start)
        assert ("Self-attention" in done.stdout) == (name in {"a.svg", "a.png"})  # beside a picture, the table
    done = CliRunner().invoke(app, ["stream", "tiny", "-o", str(tmp_path / "b.svg"), "--format", "csv"])
    assert done.stdout.startswith("system,")


def test_colours_where_they_are_wanted():
    assert "\x1b[" in CliRunner().invoke(app, ["stream", "tiny"], env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b[" not in CliRunner().invoke(app, ["stream", "tiny"], env={"FORCE_COLOR": None, "NO_COLOR": "1"}).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nothing"], "no preset"),
        (["tiny", "--seed", "-1"], "--seed -1: expected a whole number from 0 to"),
        (["tiny", "--seed", "x"], "--seed x: expected a whole number"),
        (["tiny", "--N", "0"], "--N 0"),
        (["tiny", "--size", "32"], "--size"),
        (["tiny", "--format", "xml"], "--format"),
        (["tiny", "-o", "a.gif"], ".svg, .png, .pdf"),
        (["tiny", "-o", "nowhere/a.svg"], "there is no folder"),
        (["model.py:Net"], "expected a spec, got a torch module; only a spec says which of its sums are residual adds"),
        (["tiny", "--dtype", "int8"], "--dtype"),
    ],
)
def test_bad_input_ends_in_one_line(words, expected, tmp_path):
    done = xf("stream", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len([line for line in done.stderr.splitlines() if not line.endswith("…")]) == 1


def test_what_does_not_fit_is_refused_with_its_bytes(monkeypatch):
    monkeypatch.setattr("xfcost.torch_models.memory.peak.tightest", lambda: Limit(10_000, "free memory"))
    with pytest.raises(xfcost.XfcostError, match=r"Tiny needs [\d,]+ bytes .* leaves 10,000 bytes") as caught:
        xfcost.stream("tiny")
    assert "take a smaller --N or --size, or fewer blocks (--set stages.0.depth=2)" in str(caught.value)


def test_torch_modules_are_refused():
    with pytest.raises(UsageError, match="expected a spec, got the torch module Linear"):
        xfcost.stream(nn.Linear(2, 2))  # type: ignore[arg-type]


def test_contradictions_are_listed_shortly(tiny):
    wrong = msgspec.structs.replace(tiny.steps[1], mixing="global")
    many: tuple[StreamStep, ...] = tuple(msgspec.structs.replace(wrong, block=number) for number in range(1, 21))
    found = msgspec.structs.replace(tiny, steps=many)
    assert len(list(found.contradictions)) == 20
    assert "… and 12 more" in text_of(found)
