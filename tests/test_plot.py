"""`xfcost plot` and its sweep: the numbers drawn, the ranges refused, the files written whole or not at all."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from helpers import error_of, stdout_of, table_of
from xfcost.api.axes import axis_of
from xfcost.api.runs import make_run
from xfcost.comparing.comparison import distinct
from xfcost.comparing.sweep import PIXELS, records, slope, sweep, thinned
from xfcost.ledger.errors import UsageError
from xfcost.ledger.metadata import Timing
from xfcost.questions.plot.answer import plot
from xfcost.report.figure import Captions, PanelSize, log_panels, look
from xfcost.spec.load import load
from xfcost.systems.published import published_system
from xfcost.systems.spec import SpecSystem
from xfcost.views.metrics import METRICS
from xfcost.views.plot import Chart, ChartLine, chart_bytes, chart_figure, guides_of, spread
from xfcost.views.scaling import scaling_chart

GUIDES = {"slope 2 (quadratic)": 2, "slope 1 (linear)": 1}


def swept(*specs, span=(49, 12544), special=(), **options):
    loaded = [load(spec) for spec in specs]
    names = distinct(one.spec.name for one in loaded)
    how = make_run(**options)
    return [sweep(name, SpecSystem(one), how, span, special) for name, one in zip(names, loaded, strict=True)]


def drawn(metric, *specs, mark=None, **options):
    sweeps = swept(*specs, **options)
    figure = chart_figure(scaling_chart(sweeps, [[]] * len(sweeps), metric, mark=mark))
    return figure.axes[0], {line.get_gid(): line for line in figure.axes[0].lines}


def exponent(line, low, high):
    x, y = list(line.get_xdata()), list(line.get_ydata())
    return math.log(y[x.index(high)] / y[x.index(low)]) / math.log(high / low)


def test_full_attention_is_drawn_with_slope_2_and_windows_with_slope_1():
    axes, lines = drawn("mixing", "vit", "swin")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    # (12545/3137)² over 4² is 1.99949… of a power: the class token is the only thing between it and 2.
    assert exponent(lines["ViT-S/8"], 3136, 12544) == pytest.approx(math.log((12545 / 3137) ** 2) / math.log(4))
    # 56×56 and 112×112 are whole windows at every stage but the last of the first: (7×7 windows) either way.
    assert exponent(lines["Swin-T"], 3136, 12544) == 1.0
    assert lines["ViT-S/8"].get_label() == "ViT-S/8, slope 2.00"


def test_the_lines_hold_the_numbers_of_784_tokens():
    _, lines = drawn("mixing", "vit", mark=784, special=[784])
    at = dict(zip(lines["ViT-S/8"].get_xdata(), lines["ViT-S/8"].get_ydata(), strict=True))
    # QKᵀ and AV, 12 blocks, width 384, 784 tokens and the class token.
    assert at[784] == 2 * 12 * 384 * 785**2
    assert list(lines["mark"].get_xdata()) == [784, 784]


@pytest.mark.parametrize("metric", ["mixing", "macs", "attention-memory"])
def test_guides_have_their_slopes_and_cross_no_line(metric):
    _, lines = drawn(metric, "vit", "swin")
    for name, power in GUIDES.items():
        (x0, x1), (y0, y1) = lines[name].get_xdata(), lines[name].get_ydata()
        assert math.log(y1 / y0) / math.log(x1 / x0) == pytest.approx(power)
        for system in ("ViT-S/8", "Swin-T"):
            data = zip(lines[system].get_xdata(), lines[system].get_ydata(), strict=True)
            above = [y0 * (x / x0) ** power > y for x, y in data]
            assert all(above) if power == 2 else not any(above)


@pytest.mark.parametrize(
    ("slopes", "guides"), [((1.0, 0.0), [1]), ((2.0,), [2]), ((1.0, 2.0), [2, 1]), ((1.5,), [2, 1]), ((0.0, None), [])]
)
def test_guides_are_those_that_lines_are_as_steep_as_or_lie_between(slopes, guides):
    lines = [ChartLine("A", [1, 10], [1, 10], slope) for slope in slopes]
    assert [power for power, _ in guides_of(Chart("", "", "", "count", lines))] == guides
    squares = [line._replace(slope=line.slope and 2 * line.slope) for line in lines]  # N is the square of the side
    found = guides_of(Chart("", "", "", "count", squares, axis=PIXELS))
    assert [power for power, _ in found] == [2 * power for power in guides]


def test_n_is_of_the_first_stage_only_where_later_stages_have_other_numbers():
    assert drawn("mixing", "gpt2", span=(64, 1024))[0].get_xlabel() == "N, tokens"
    assert drawn("mixing", "swin")[0].get_xlabel() == "N, tokens of the first stage"


def test_two_systems_have_their_ratio_at_the_mark():
    axes, _ = drawn("scores", "vit", "swin", mark=784, special=[784])
    assert [text.get_text() for text in axes.texts if text.get_gid() == "ratio"] == ["16×"]
    sweeps = swept("vit", "swin", special=[784])
    chart = scaling_chart(sweeps, [[], []], "scores", mark=784)
    # ViT-S/8 reads its class token too: 785² pairs.
    assert "attention scores at N = 784: Swin-T 38,416, ViT-S/8 616,225 (16.04× as many)" in chart.summary
    alone = scaling_chart(sweeps[:1], [[]], "scores", mark=784)
    assert len(alone.summary) == 1


def test_a_plot_over_n_says_which_images_its_systems_see():
    # 784 = 28×28 patches: of 8×8 pixels, and of 4×4
    seen = "At N = 784 ViT-S/8 sees 224×224, Swin-T 112×112; --size compares equal images."
    chart = scaling_chart(swept("vit", "swin", special=[784]), [[], []], "macs", mark=784)
    assert seen in chart.summary
    assert chart.footnote.startswith(seen)
    for specs in (("vit", "vit-s8"), ("vit", "gpt2")):  # equal images; one image alone
        chart = scaling_chart(swept(*specs, span=(49, 784)), [[], []], "macs", mark=784)
        assert "sees" not in chart.footnote + " ".join(chart.summary)


@pytest.mark.parametrize(
    ("listed", "steps", "beyond"), [((), True, False), ((196, 784), False, True), ((3136, 12_544), False, False)]
)
def test_a_caption_names_steps_that_are_drawn_and_slopes_of_sizes_that_are_not(listed, steps, beyond):
    swin = sweep("Swin-T", SpecSystem(load("swin")), make_run(), (49, 12_544), listed=listed)
    chart = scaling_chart([swin], [[]], "macs", mark=None)
    assert ("steps" in chart.footnote) == steps
    assert ("beyond this plot" in chart.footnote, "beyond this plot" in chart.summary[0]) == (beyond, beyond)


@pytest.mark.parametrize(
    ("given", "forms"),
    [(("196", None), ("--N 196:784", "--N 196,784")), ((None, "224"), ("--size 224:448", "--size 224,448"))],
)
def test_a_range_of_one_number_is_refused_with_both_forms_of_more(given, forms):
    with pytest.raises(UsageError) as refused:
        axis_of(*given)
    assert all(form in str(refused.value) for form in forms)
    for form in forms:  # each is accepted as it is written
        flag, text = form.split()
        axis_of(*((text, None) if flag == "--N" else (None, text)))


def test_a_metric_is_named_by_a_word_that_only_its_name_has():
    found, short = (plot("vit-s8", metric=metric, N="49:196").rows for metric in ("attention-memory", "memory"))
    assert found == short
    assert plot("vit-s8", metric="memory", N="49:196").summary[0].startswith("ViT-S/8: attention memory grows")
    for unknown in ("memroy", ""):
        with pytest.raises(UsageError, match="expected one of attention-memory"):
            plot("vit-s8", metric=unknown, N="49:196")


def test_a_plot_of_no_given_metric_says_how_to_get_that_of_the_whole_model(tmp_path):
    told = "FLOPs of whole models: xfcost plot vit-s8 --N 49:196 --metric flops"
    assert told in stdout_of("plot", "vit-s8", "--N", "49:196", "-o", tmp_path / "a.csv")
    assert told not in stdout_of("plot", "vit-s8", "--N", "49:196", "--metric", "mixing", "-o", tmp_path / "b.csv")


def test_every_counted_metric_is_the_ledgers_own_figure():
    (one,) = swept("swin", span=(784, 3136), batch=3, dtype="fp16")
    ledger = one.ledgers[0]
    wanted = {
        "params": ledger.total("params"),
        "macs": ledger.total("macs"),
        "flops": ledger.total("flops"),
        "mixing_macs": sum(row.macs * row.times for row in ledger.rows if row.mixing != "per-token"),
        "attention_bytes": 2 * sum(row.attention_entries * row.times for row in ledger.rows),
        "cache_bytes": 0,  # a forward keeps nothing
        "scores": 784 * 49,  # 784 tokens in windows of 49
    }
    assert {name: one.values(name)[0] for name in wanted} == wanted
    assert {metric.quantity for metric in METRICS.values()} <= {*wanted, "least_seconds"}  # which needs devices
    assert records(one)[0].items() >= (wanted | {"N": 784, "batch": 3, "dtype": "float16"}).items()


def test_image_specs_take_square_grids_and_sequences_both_ends():
    vit, gpt = swept("vit", "gpt2", span=(50, 1000))
    assert all(math.isqrt(n) ** 2 == n for n in vit.xs)
    assert (vit.xs[0], vit.xs[-1]) == (64, 961)
    assert (gpt.xs[0], gpt.xs[-1]) == (50, 1000)
    assert list(vit.xs) == sorted(set(vit.xs))


def test_the_marked_n_is_one_of_the_points_of_a_grid_that_can_be():
    plain, marked = swept("vit", "gpt2")[0], swept("vit", "gpt2", special=[113, 10_816])
    assert 10_816 not in plain.xs  # 104×104, between two steps
    assert 10_816 in marked[0].xs
    assert 113 not in marked[0].xs  # a prime makes no grid, and is no error
    assert 113 in marked[1].xs


def test_slope_is_the_least_squares_line_in_logarithms():
    tokens = [1, 10, 100, 1000]
    assert slope(tokens, [5 * n**1.5 for n in tokens]) == pytest.approx(1.5)
    assert slope([10], [3]) is None
    assert slope([1, 2], [0, 0]) is None


def test_few_keeps_both_ends():
    assert thinned(list(range(1, 1001)), 4) == [1, 10, 100, 1000]
    assert thinned([3, 4], 5) == [3, 4]


@pytest.mark.parametrize("text", ["1:" + "9" * 5000, "9" * 5000 + ":" + "9" * 6000])
def test_long_numbers_are_refused_shortly(text):
    with pytest.raises(UsageError, match="at most") as caught:
        axis_of(text, None)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("plot", "vit"), "a.svg"), (("plot", "nothing"), "a.svg"), (("diagram", "nothing"), "a.svg"),
        (("glance", "nothing"), "a.csv"), (("analyze", "nothing"), "a.csv"), (("report", "vit"), "a.html"),
    ],
)  # fmt: skip
def test_an_existing_file_is_kept_and_refused_before_any_work(words, name, tmp_path):
    (tmp_path / name).write_text("mine")
    assert "already exists; " in error_of(*words, "-o", tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(("command", "name", "starts"), [("plot", "a.svg", "<?xml"), ("analyze", "a.csv", "path,")])
def test_an_existing_file_is_replaced_with_force(command, name, starts, tmp_path):
    (tmp_path / name).write_text("mine")
    stdout_of(command, "vit", "-o", tmp_path / name, "-f")
    assert (tmp_path / name).read_text().startswith(starts)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("form", "magic"), [(".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_the_same_numbers_give_the_same_bytes(form, magic):
    sweeps = swept("vit", "swin", span=(49, 784))
    first, second = (chart_bytes(scaling_chart(sweeps, [[], []], "mixing", mark=784), form) for _ in range(2))
    assert first == second
    assert first.startswith(magic)
    assert b"CreationDate" not in first


def test_csv_holds_what_is_drawn(tmp_path):
    target = tmp_path / "data.csv"
    stdout_of("plot", "vit", "swin", "--N", "49:12544", "-o", target)
    rows = table_of(target)
    _, lines = drawn("mixing", "vit", "swin", special=[784])
    for system in ("ViT-S/8", "Swin-T"):
        mine = [row for row in rows if row["system"] == system]
        assert [int(row["N"]) for row in mine] == list(lines[system].get_xdata())
        assert [int(row["mixing_macs"]) for row in mine] == list(lines[system].get_ydata())
    assert {row["seconds"] for row in rows} == {""}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("plot vit swin --N 49:196 --metric macs", "vit-swin-macs.svg"),
        ("roofline vit-ti16 --size 32 --on h100-sxm", "vit-ti16-roofline.svg"),
    ],
)
def test_without_o_the_file_is_named_after_what_it_shows(words, name, tmp_path):
    stdout_of(*words.split(), cwd=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_nothing_but_zeros_is_refused():
    sweeps = swept("vit", span=(49, 64))
    per_token = [ledger.part(row for row in ledger.rows if row.mixing == "per-token") for ledger in sweeps[0].ledgers]
    with pytest.raises(UsageError, match="nothing to draw"):
        scaling_chart([msgspec.structs.replace(sweeps[0], ledgers=tuple(per_token))], [[]], "mixing", mark=None)


def test_traced_points_lie_on_the_formula(tmp_path):
    target = tmp_path / "traced.csv"
    stdout_of("plot", "vit-ti16", "--N", "49:196", "--device", "cpu", "-o", target)
    rows = [row for row in table_of(target) if row["traced_macs"]]
    assert len(rows) >= 2
    for row in rows:
        assert row["traced_macs"] == row["macs"]
        assert row["traced_mixing_macs"] == row["mixing_macs"]


def test_measured_seconds_are_drawn_with_their_spread():
    (one,) = swept("vit-ti16", span=(49, 196))
    live = []
    for ledger, seconds in zip((one.ledgers[0], one.ledgers[-1]), (0.01, 0.08), strict=True):
        timing = Timing(device="cpu", machine="abacus", seconds=seconds, spread=seconds / 10, runs=3, threads=1)
        live.append(msgspec.structs.replace(ledger, timing=timing))
    chart = scaling_chart([one], [live], "time", mark=None)
    assert list(chart.points[0].xs) == [49, 196]
    assert list(chart.points[0].values) == [0.01, 0.08]
    assert chart.points[0].spread == [0.001, 0.008]
    assert chart.points[0].name == "ViT-Ti/16, measured, slope 1.50"
    assert chart.lines[0].values[0] == pytest.approx(0.01)
    assert "abacus" in chart.subtitle
    bars = chart_figure(chart).axes[0].containers[0].lines[2][0]
    assert tuple(bars.get_paths()[0].vertices[:, 1]) == pytest.approx((0.0095, 0.0105))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=25))
def test_names_at_the_ends_keep_apart_and_inside(heights):
    gap = 0.04
    moved = spread(sorted(heights), gap)
    assert all(0 <= height <= 1 for height in moved)
    assert all(high - low >= gap - 1e-9 for low, high in pairwise(moved))
    apart = all(high - low >= gap for low, high in pairwise(sorted(heights)))
    if apart:  # nothing to do: but for the edges, which are never passed
        assert moved == pytest.approx(sorted(heights), abs=1e-9)


@pytest.mark.parametrize(("systems", "legend"), [(8, True), (9, False)])
def test_more_than_eight_lines_are_named_at_their_ends(systems, legend):
    lines = [ChartLine(f"system {number}", [10, 100], [10 + number, 1000 + number], 2.0) for number in range(systems)]
    figure = chart_figure(Chart("T", "s", "v", "count", lines))
    assert len(figure.axes) == (1 if legend else 2)
    assert all((axes.get_legend() is not None) == legend for axes in figure.axes)
    texts = [text for axes in figure.axes for text in axes.texts]
    named = [text.get_text() for text in texts if text.get_text().startswith("system ")]
    assert len([text for text in named if text.endswith("2.00")]) == (0 if legend else systems)
    figure.canvas.draw()
    for text in texts:
        box = text.get_window_extent()
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


def test_bytes_have_ticks_at_powers_of_two():
    # at N = 49: 12 blocks, 6 heads, 50 x 50 entries of four bytes; 784: 785 x 785
    axes, _ = drawn("attention-memory", "vit", span=(49, 784))
    low, high = axes.get_ylim()
    assert low < 12 * 6 * 50**2 * 4 < 2**20
    assert 2**27 < 12 * 6 * 785**2 * 4 < high
    texts = [axes.yaxis.get_major_formatter()(place) for place in axes.get_yticks() if low <= place <= high]
    assert texts == ["1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB"]


def test_names_beside_panels_stay_inside_the_figure_and_off_the_next_panel():
    names = [*("a" * 33 for _ in range(5)), *("b" * 20 for _ in range(5))]
    lines = [ChartLine(name, (64, 128), (2.0, 4.0 + place), 1.0) for place, name in enumerate(names)]
    with look():
        figure = chart_figure(Chart("T", "s", "v", "count", lines))
        renderer = FigureCanvasAgg(figure).get_renderer()
        names = [text for axes in figure.axes for text in axes.texts if "  1.00" in text.get_text()]
        labels = [text.get_window_extent(renderer) for text in names]
    assert len(labels) == 10
    assert max(box.x1 for box in labels) < figure.bbox.x1
    right = figure.axes[1].get_tightbbox(renderer).x0
    assert all(box.x1 < right for box in labels if box.x0 < right)


def test_a_system_without_scores_is_named():
    sweeps = swept("vit", "resnet-50", span=(49, 784))
    assert scaling_chart(sweeps, [[], []], "scores", mark=None).footnote == "No line (no attention scores): ResNet-50."
    assert "no line" not in scaling_chart(sweeps, [[], []], "macs", mark=None).footnote


@pytest.mark.parametrize("system", [SpecSystem(load("llama3-8b")), published_system("olmo-2-7b", mode="decode")])
def test_a_caption_says_which_n_is_beyond_the_positions(system):
    most, run = {"OLMo 2 7B": 4096}.get(system.name, 8192), make_run(mode="decode", dtype="bfloat16", attention="fused")
    footnotes = [
        scaling_chart([sweep("M", system, run, (1024, last))], [[]], "cache", mark=None).footnote
        for last in (most, 2 * most)
    ]
    text = f"M: N = {2 * most:,} is beyond the model's {most:,} positions."
    assert [footnote.endswith(text) for footnote in footnotes] == [False, True]


def test_ticks_are_read_as_numbers_and_not_as_formulas():
    with look():
        axes = chart_figure(scaling_chart(swept("vit", "swin", span=(49, 784)), [[], []], "mixing", mark=784)).axes[0]
        axes.figure.canvas.draw()
        ticks = [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    assert "1 G" in ticks
    assert not any("$" in tick for tick in ticks)


@pytest.mark.parametrize(("count", "across"), [(1, 4.0), (1, 7.2), (1, 8.0), (2, 5.4), (3, 3.9)])
def test_captions_of_any_length_stay_inside_the_figure_and_off_its_panels(count, across):
    # 30·14 and 19·24 letters take two lines and more even where the figure is widest.
    captions = Captions("Title", "NVIDIA H100 SXM, 67 TFLOP/s, " * 14, "attention matrices " * 24)
    with look():
        figure, panels = log_panels(captions, count, PanelSize(across, 3.0), legend=0.5)
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes = [text.get_window_extent(renderer) for text in figure.texts]
    assert len(boxes) >= 4
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes)
    assert not any(box.overlaps(axes.bbox) for box in boxes for axes in panels)


def test_slopes_are_of_sizes_without_padding():
    # windows of 7 fill grids of 56 and 112 in all four stages: 3,136 and 12,544 tokens; O(N·W²·d) is linear in N
    swin = sweep("Swin-T", SpecSystem(load("swin-t", ())), make_run(), (49, 12_544))
    assert swin.slope("mixing_macs") == pytest.approx(1.0, abs=1e-12)
    whole = [x for x, ledger in zip(swin.xs, swin.ledgers, strict=True) if not ledger.metadata.padded]
    assert whole[0] == 3_136
    assert whole[-1] == 12_544
    # 56×56 is the only grid of whole windows in this range; 112×112 is the next
    narrow = sweep("Swin-T", SpecSystem(load("swin-t", ())), make_run(), (784, 4096))
    assert narrow.slope("mixing_macs") == pytest.approx(1.0, abs=1e-12)
    assert narrow.xs[-1] == 4096
    assert scaling_chart([narrow], [[]], "mixing", mark=None).footnote.endswith(
        "need none (N = 3,136 to 12,544, beyond this plot)."
    )


def test_a_slope_is_that_of_the_upper_end_and_a_caption_names_the_steps_of_tokens_left_out():
    # the Compressive Transformer's attention outgrows its projections: 0.97 over all N, between 1 and 2 at the end
    compressive = sweep("C", SpecSystem(load("common-compressive", ())), make_run(), (49, 12_544))
    points = {x: ledger.total("macs") for x, ledger in compressive.slope_points.items()}
    low, high = min(points), max(points)
    assert (low, high) == (3136, 12_544)
    assert compressive.slope("macs") == pytest.approx(math.log(points[high] / points[low], 4), abs=0.1)
    assert compressive.slope("macs") > 1.4
    # PVT's patches of 8×8 tokens tile grids whose sides are multiples of 8, in its later stages 4×4 and 2×2 ones
    pvt = sweep("PVT", SpecSystem(load("pvt-small", ())), make_run(), (64, 12_544))
    chart = scaling_chart([pvt], [[]], "macs", mark=None)
    assert chart.footnote == (
        "PVT's steps come from last tokens that go into no patch or kernel. "
        "Its slope is fitted to sizes that have none (N = 3,136 to 12,544)."
    )
    assert chart.summary[0].endswith(", sizes in whole patches)")


@pytest.mark.parametrize(
    ("metric", "given", "marked"), [("params", None, False), ("params", 784, True), ("macs", None, True)]
)
def test_parameters_have_a_marked_n_only_where_one_is_given(metric, given, marked):
    found = plot("vit-s8", "swin-t", N="49:3136", metric=metric, mark=given)
    assert any("at N = 784" in text for text in found.summary) == marked
