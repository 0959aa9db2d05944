"""`xfcost diagram`: the boxes of a block, laid side by side, in the terminal and as a figure."""

import json
import re

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyBboxPatch

from helpers import stdout_of, xf
from xfcost.api.analysis import analyze
from xfcost.api.runs import make_run
from xfcost.comparing.diagram import component_title, diagram, sublayer_boxes
from xfcost.formulas.component import Place, Residual
from xfcost.layers.feed_forward import Mlp, Swiglu
from xfcost.layers.moe import Moe
from xfcost.layers.shift import Context
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import MIXINGS, Operation
from xfcost.mechanisms.full import Full
from xfcost.questions.diagram.text import diagram_figure
from xfcost.report.style import WORDS
from xfcost.spec.architecture import Part
from xfcost.spec.load import load
from xfcost.spec.placement import place


def built(*specs, **options):
    return diagram([place(load(spec), make_run(**options)) for spec in specs])


@pytest.mark.parametrize("spec", ["vit", "swin", "gpt2", "transformer-base"])
def test_the_boxes_hold_all_macs_of_the_block(spec):
    ledger = analyze(spec, N=196, batch=2, trace=False)
    for column, prefix in zip(built(spec, N=196, batch=2).columns, ("encoder.", "decoder."), strict=False):
        first = [
            row for row in ledger.rows if ".stages.0." in f".{row.path}" and row.path.startswith((prefix, "stages"))
        ]
        first = [row for row in first if ".enter." not in row.path and row.block == first[0].block]
        assert sum(box.macs or 0 for box in column.boxes) == sum(row.macs for row in first) > 0


def test_a_core_with_per_token_steps_tells_what_its_mixing_costs():
    core = next(box for box in built("mamba-130m").columns[0].boxes if box.slot == "core")
    # d = 1,536, N = 512: a kernel of 4 (and 3 zeros before), a scan of 16 states; ranks of 48 + 2·16, and 48 back.
    assert core.mixing_macs == 1536 * (515 * 4 + 512 * 16)
    assert core.macs == core.mixing_macs + 512 * 1536 * (80 + 48)


def test_pre_norm_against_post_norm_is_marked():
    one = built("vit", "transformer-base", "gpt2", "swin")
    assert one.mark(1) == "missing in some"
    for number, column in enumerate(one.columns):
        assert tuple(row[number] for row in one.rows if row[number]) == column.boxes


@pytest.mark.parametrize("width", ["80", "100", "120", "200"])
@pytest.mark.parametrize("specs", [["vit"], ["vit", "swin"], ["vit", "swin", "gpt2", "transformer-base"]])
def test_no_word_is_cut_at_any_width(specs, width):
    result = stdout_of("diagram", *specs, COLUMNS=width)
    assert "…" not in result
    assert max(len(line) for line in result.splitlines()) <= int(width)
    for column in built(*specs).columns:
        assert column.name in result
        for box in column.boxes:
            assert box.title in result
    # Frames close: as many left corners as right ones.
    assert result.count("╭") == result.count("╮") == result.count("╯")
    assert result.count("┏") == result.count("┛")


def test_without_colour_kinds_and_the_difference_are_words():
    plain = xf("diagram", "vit", "swin", NO_COLOR="1", TERM="dumb").stdout
    assert "\x1b" not in plain
    assert "\x1b[" in xf("diagram", "vit", FORCE_COLOR="1").stdout
    for kind in MIXINGS:
        assert WORDS[kind] in plain


def sublayer_with(component, *rows, residual=None):
    """The boxes of a block's only sub-layer, whose component has these rows inside its residual."""
    part = Part("b.0", component, Place(grid=Grid((4, 4)), dim=8, out_dim=8), residual or Residual())
    inside = [Operation(path=f"b.0.{name}", component="b.0", title=f"Title of {name}", **more) for name, more in rows]
    norm = Operation(path="b.0.residual_norm", component="b.0", title="Layer norm", params=16, role="norm")
    add = Operation(path="b.0.residual_add", component="b.0", title="Residual add", flops=1, role="add")
    orders = {"pre": [norm, *inside, add], "post": [*inside, add, norm], "res_post": [*inside, norm, add]}
    return list(sublayer_boxes(part, orders[part.residual.place]))


def test_an_unknown_step_is_drawn_with_its_title():
    rows = [
        ("qkv", {"macs": 1}),
        ("hash", {}),
        ("scores", {"macs": 9, "mixing": "local", "symbol": "QKᵀ"}),
        ("out", {"macs": 1}),
    ]
    boxes = sublayer_with(Full(heads=1), *rows)
    assert [box.title for box in boxes] == [
        "LayerNorm", "Title of qkv", "Self-attention", "Title of out", "+ Residual",
    ]  # fmt: skip
    core = next(box for box in boxes if box.core)
    assert core.detail == "Title of hash / QKᵀ"


@pytest.mark.parametrize("place", ["pre", "post", "res_post"])
@pytest.mark.parametrize("rows", [[], [("pool", {"flops": 3})], [("a", {"macs": 1}), ("b", {"macs": 2})]])
def test_a_mixer_without_a_mixing_row_is_one_box(place, rows):
    boxes = sublayer_with(Full(heads=1), *rows, residual=Residual(place=place))
    order = {"pre": "LayerNorm x +", "post": "x + LayerNorm", "res_post": "x LayerNorm +"}[place]
    assert [box.title for box in boxes] == [
        {"x": "Self-attention", "+": "+ Residual"}.get(word, word) for word in order.split()
    ]
    core = next(box for box in boxes if box.slot == "core")
    assert core.mixing == "per-token"
    assert core.macs == sum(more.get("macs", 0) for _, more in rows)
    assert core.detail == " / ".join(f"Title of {name}" for name, _ in rows)


def test_a_component_s_own_norm_and_add_are_not_the_residuals():
    rows = [("norm", {"macs": 5}), ("expert.residual_norm", {"macs": 70}), ("add", {"macs": 600})]
    boxes = sublayer_with(Mlp(), *rows)
    assert [(box.title, box.macs) for box in boxes] == [("LayerNorm", 0), ("MLP", 675), ("+ Residual", 0)]
    boxes = sublayer_with(Full(heads=1), *rows, ("scores", {"macs": 1, "mixing": "global"}))
    assert [box.title for box in boxes][1:-1] == [f"Title of {name}" for name, _ in rows] + ["Self-attention"]


def test_the_figure_says_all_and_nothing_overlaps_or_leaves_it():
    figure = diagram_figure(built("vit", "swin", "transformer-base"))
    renderer = FigureCanvasAgg(figure).get_renderer()
    axes = figure.axes[0]
    texts = [text for text in (*axes.texts, *figure.texts) if text.get_text()]
    frames = [text.get_window_extent(renderer) for text in texts]
    for number, frame in enumerate(frames):
        assert figure.bbox.x0 <= frame.x0
        assert frame.x1 <= figure.bbox.x1, texts[number].get_text()
        for other in range(number):
            assert not frame.overlaps(frames[other]), (texts[number].get_text(), texts[other].get_text())
    boxes = [patch.get_window_extent(renderer) for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    marks = [
        frame for text, frame in zip(texts, frames, strict=True) if text.get_text() in ("differs", "no counterpart")
    ]
    assert marks
    assert not any(mark.overlaps(box) for mark in marks for box in boxes)
    said = {text.get_text() for text in texts}
    assert {"W-MSA", "Self-attention", "Cross-attention", "no counterpart", "local mixing"} <= said


def test_the_boxes_are_a_table_and_records_too():
    # tiny: N = d = 4, one head, an MLP of 4·d: Q, K, V are N·d·3d MACs, scores and weighted sum N²·d each, the output
    # projection N·d², both products of the MLP N·d·4d each.
    macs = {"Q, K, V projections": 192, "Self-attention": 128, "Output projection W_O": 64, "MLP": 512}
    read = json.loads(xf("diagram", "tiny", "--format", "json").stdout)
    boxes = {box["box"]: box for box in read["columns"][0]["boxes"]}
    assert {box: boxes[box]["macs"] for box in macs} == macs
    assert boxes["Self-attention"]["mixing_macs"] == 128


def test_a_long_name_stays_above_its_column(tmp_path):
    spec = tmp_path / "long.yaml"
    spec.write_text(f"extends: vit-ti16\nname: {'Network ' * 20}of mine\n")
    target = tmp_path / "blocks.svg"
    assert xf("diagram", spec, "swin", "-o", target).returncode == 0
    svg = target.read_text(encoding="utf-8")
    assert "Network Network Network Network N…" in svg
    assert "of mine" in " ".join(svg.split())  # the whole name below


def test_of_one_system_every_stage_that_is_built_otherwise_is_drawn():
    first, last = built("pvt-tiny").columns
    assert (first.where[0], last.where[0]) == ("stage 1 of 4", "stage 4 of 4")
    assert first.where[-1] == "×2"
    assert not any("not drawn" in note for note in built("pvt-tiny").notes)
    many = built("mobilevit-s")
    assert len(many.columns) == 4
    drawn = {column.where[0] for column in many.columns}
    text = " ".join(many.notes)
    for number in range(1, 10):
        assert f"stage {number} of 9" in drawn or re.search(rf"stages? [^:]*\b{number}\b", text)


@pytest.mark.parametrize(
    ("component", "title"), [(Mlp(), "MLP"), (Moe(), "MoE"), (Swiglu(), "SwiGLU"), (Context(), "Context")]
)
def test_a_sublayer_that_mixes_no_tokens_has_its_kind_as_title(component, title):
    assert component_title(component) == title
