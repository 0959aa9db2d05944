"""`xfcost roofline`: roofs and points worked out by hand, picture, command; and the percent of peak in `analyze`."""

import json
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from calibrated import keep_calibration
from helpers import PLAIN, stdout_of, table_of, xf
from xfcost.api import roofline as api
from xfcost.api.runs import make_run
from xfcost.cli import app
from xfcost.counting.forward import count
from xfcost.counting.model_record import forward_record
from xfcost.ledger.calibration import Baseline
from xfcost.ledger.join import with_operand_bytes
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata, Timing
from xfcost.ledger.operation import Operation
from xfcost.ledger.roofline import points_of, records, roofline_of
from xfcost.ledger.roofs import roofs_of
from xfcost.parts.prediction.result import Prediction
from xfcost.report.figure import LabelBox, Named, look, placed
from xfcost.report.style import FIGURE
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.torch_models.predicting import calibrate
from xfcost.views.roofline_figure import roofline_bytes, roofline_figure

# 100 GFLOP/s, 20 GB/s: they meet at 5 FLOP/byte.
BASELINE = Baseline(call_seconds=1e-6, macs_per_second=50e9, bytes_per_second=20e9)
ROOFS = roofs_of(BASELINE, "2026-11-22T10:00:00+00:00")
TINY = ("--size", "32", "--set", "stages.0.depth=1", "--threads", "1")


@pytest.mark.parametrize(
    ("intensity", "roof", "bound"),
    [
        (0.0, 0.0, "memory-bound"),
        (0.25, 5e9, "memory-bound"),  # a quarter of a FLOP for each of 20 G bytes
        (2.0, 40e9, "memory-bound"),
        (4.999, 99.98e9, "memory-bound"),
        (5.0, 100e9, "compute-bound"),  # at the ridge point both roofs are as high
        (80.0, 100e9, "compute-bound"),
    ],
)
def test_memory_is_the_roof_below_the_ridge_point(intensity, roof, bound):
    assert ROOFS.at(intensity) == pytest.approx(roof)
    assert ROOFS.bound(intensity) == bound


def row(path, title, mixing="per-token", times=1, flops=0, seconds=None, held=None, predicted=None):
    return Operation(
        path=path, component=path.rpartition(".")[0], title=title, mixing=mixing, times=times, flops=flops,
        seconds=seconds, operand_bytes=held, predicted_seconds=predicted,
    )  # fmt: skip


ROWS = (
    # 3 blocks of 4 GFLOP in 0.05 s, 1 GB; one of 8 GFLOP in 0.1 s, 3 GB: 20 GFLOP, 6 GB, 0.25 s
    row("a.scores", "Scores", "global", times=3, flops=4 * 10**9, seconds=0.05, held=10**9),
    row("b.scores", "Scores", "global", flops=8 * 10**9, seconds=0.1, held=3 * 10**9),
    # the same name, but windows
    row("c.scores", "Scores", "local", flops=10**9, seconds=0.05, held=4 * 10**9),
    row("a.fc", "Projection", flops=40 * 10**9, seconds=0.5, held=2 * 10**9),
    # 0.5 FLOP/byte at 20 GFLOP/s, where memory gives 10
    row("a.norm", "Norm", flops=10**9, seconds=0.05, held=2 * 10**9),
    row("a.roll", "Roll", "local", seconds=0.1, held=10**9),
    row("a.table", "Table", flops=5),
)
TIMING = Timing(
    device="cpu", machine="Abacus", seconds=1.0, spread=0.0, runs=1, threads=1, not_attributed=0.05, noisy="a fan"
)


def ledger(rows=ROWS, name="One", **more):
    metadata = Metadata(name=name, tokens="4", grid_tokens=4)
    return Ledger(metadata=metadata, rows=rows, **({"timing": TIMING} | more))


def found(**more):
    return roofline_of(ledger(**more), ROOFS)


def point(title, mixing, of=None):
    return next(one for one in (of or found()).points if (one.title, one.mixing) == (title, mixing))


def test_an_operation_is_one_point_over_all_blocks_that_have_it():
    both = point("Scores", "global")
    assert (both.seconds, both.flops, both.operand_bytes) == (pytest.approx(0.25), 20 * 10**9, 6 * 10**9)
    assert both.share == pytest.approx(0.25)
    assert both.intensity == pytest.approx(20 / 6)
    assert both.flops_per_second == pytest.approx(80e9)
    assert point("Scores", "local").seconds == 0.05


def test_points_are_the_longest_first_and_a_row_without_seconds_has_none():
    assert [one.title for one in found().points] == ["Projection", "Scores", "Roll", "Scores", "Norm"]
    assert [one.title for one in found().drawn] == ["Projection", "Scores", "Scores", "Norm"]


def test_the_share_of_the_roof_is_of_the_lower_one_at_its_intensity():
    one = found()
    # 20 FLOP/byte: under the peak of 100 GFLOP/s, at 80
    assert one.of_roof(point("Projection", "per-token")) == pytest.approx(0.8)
    # 0.25 FLOP/byte: memory gives 5 GFLOP/s, it runs at 20
    assert one.of_roof(point("Scores", "local")) == pytest.approx(4.0)
    # 3.33 FLOP/byte: memory gives 66.7 GFLOP/s, it runs at 80
    assert one.of_roof(point("Scores", "global")) == pytest.approx(1.2)
    assert one.of_roof(point("Roll", "local")) is None


def test_points_above_the_memory_roof_are_those_that_are_faster_than_memory():
    assert [(one.title, one.mixing) for one in found().above_memory()] == [
        ("Scores", "global"), ("Scores", "local"), ("Norm", "per-token"),
    ]  # fmt: skip
    # faster than the peak is no matter of memory
    fast = row("a.fc", "Projection", flops=10**12, seconds=0.5, held=10**9)
    assert found(rows=(fast,)).above_memory() == ()


def test_points_above_the_peak_tell_that_it_was_measured_on_a_busier_machine():
    # 105 and 120 GFLOP/s at 20 FLOP/byte
    rows = [row(f"a.{rate}", f"At {rate}", flops=rate * 10**9, seconds=1.0, held=5 * 10**9) for rate in (105, 120)]
    one = found(rows=tuple(rows))
    assert [point.title for point in one.above_peak()] == ["At 120"]
    assert found().above_peak() == ()


def test_predicted_seconds_make_the_points_where_nothing_was_timed():
    prediction = Prediction(
        device="cpu", machine="Abacus", threads=1, seconds=4.0, low=3.0, high=5.0, calibrated="2026-11-22",
        not_attributed=1.0,
    )  # fmt: skip
    rows = (
        row("a.fc", "Projection", times=2, flops=6, held=3, predicted=1.5),
        row("a.x", "Other", seconds=9.0, held=1),
    )
    one = roofline_of(ledger(rows, timing=None, prediction=prediction), ROOFS)
    (only,) = one.points
    assert (only.title, only.seconds, only.share, only.flops) == ("Projection", 3.0, 0.75, 12)
    assert (one.predicted, one.seconds, one.not_attributed) == (True, 4.0, 1.0)
    assert points_of(rows, 4.0, predicted=False)[0].title == "Other"


def bytes_of(spec, **options):
    """Bytes of the rows of one forward, by the end of their path."""
    architecture = place(load(spec, ["stages.0.depth=1"]), make_run(**options))
    ledger = with_operand_bytes(count(architecture), forward_record(architecture).operands)
    return {row.path.rpartition(".")[2]: row.operand_bytes for row in ledger.rows}


def test_a_shared_table_is_read_where_it_is_used():
    # a decode step of GPT-2: one vector of 768 in, the table of 50,257 tokens, a score of each out; four bytes each
    assert bytes_of("gpt2", N=8, mode="decode", **PLAIN)["linear"] == 4 * (768 + 50_257 * 768 + 50_257)
    # eight token numbers of eight bytes each; their rows, read and written
    assert bytes_of("gpt2", N=8)["lookup"] == 8 * 8 + 2 * 8 * 768 * 4


def test_a_table_that_is_its_own_output_is_one_tensor():
    # 4 tokens and the class token, 192 wide
    assert bytes_of("vit-ti16", size=32)["table"] == 5 * 192 * 4


def test_the_csv_holds_every_point_raw():
    rows = records(found())
    assert [one["operation"] for one in rows] == [one.title for one in found().points]
    expected = {
        "system": "One", "N": 4, "batch": 1, "dtype": "float32", "attention": "eager", "mode": "forward",
        "device": "cpu", "machine": "Abacus", "threads": 1, "predicted": False, "operation": "Scores",
        "mixing": "local", "seconds": 0.05, "share": 0.05, "flops": 10**9, "operand_bytes": 4 * 10**9,
        "intensity": 0.25, "flops_per_second": 20e9, "bytes_per_second": 80e9, "of_roof": 4.0, "bound": "memory-bound",
        "peak_flops_per_second": 100e9, "peak_bytes_per_second": 20e9,
    }  # fmt: skip
    assert rows[3] == pytest.approx(expected)
    assert rows[2]["of_roof"] is None


def drawn(*each):
    with look():
        return roofline_figure(each or (found(),))


def marks(axes):
    return {one.get_gid(): one for one in (*axes.collections, *axes.lines) if one.get_gid()}


def test_points_and_roofs_stand_where_their_numbers_say():
    (axes,) = drawn().axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    of = marks(axes)
    assert set(of) == {"memory roof", "peak roof", "ridge point", "Projection, per-token", "Scores, global",
                       "Scores, local", "Norm, per-token"}  # fmt: skip
    assert list(of["Projection, per-token"].get_offsets()[0]) == pytest.approx([20, 80e9])
    assert list(of["Scores, local"].get_offsets()[0]) == pytest.approx([0.25, 20e9])
    (x0, x1), (y0, y1) = of["memory roof"].get_data()
    assert (y0, x1, y1) == (pytest.approx(20e9 * x0), 5.0, 100e9)
    assert list(of["peak roof"].get_ydata()) == [100e9, 100e9]
    assert list(of["ridge point"].get_xdata()) == [5.0, 5.0]


def test_a_kind_has_its_colour_and_its_marker():
    of = marks(drawn().axes[0])
    kinds = {"per-token": "Projection, per-token", "local": "Scores, local", "global": "Scores, global"}
    assert {kind: to_hex(of[gid].get_edgecolor()[0]) for kind, gid in kinds.items()} == {
        kind: FIGURE[kind] for kind in kinds
    }
    assert len({tuple(of[gid].get_paths()[0].vertices.ravel()) for gid in kinds.values()}) == 3


def area(vertices):
    """Of a polygon, by the shoelace formula."""
    around = zip(vertices, [*vertices[1:], vertices[0]], strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in around)) / 2


def test_the_area_of_every_marker_is_proportional_to_its_share_of_time():
    of = marks(drawn().axes[0])

    def area_of(gid):  # a marker's path is scaled by the root of its size
        (polygon,) = of[gid].get_paths()[0].to_polygons()
        return area([tuple(place) for place in polygon[:-1]]) * of[gid].get_sizes()[0]

    shares = {"Projection, per-token": 0.5, "Scores, global": 0.25, "Scores, local": 0.05, "Norm, per-token": 0.05}
    per_share = [area_of(gid) / share for gid, share in shares.items()]
    assert per_share == pytest.approx([per_share[0]] * 4, rel=0.02)


def test_several_systems_have_a_panel_each_with_the_same_axes():
    slow = row("a.fc", "Slow", flops=10, seconds=0.5, held=10**4)
    figure = drawn(found(), found(name="Two", rows=(slow,)), found(name="Three"))
    assert [axes.get_title(loc="left").split(",")[0] for axes in figure.axes] == ["One", "Two", "Three"]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    (low, _), (bottom, _) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    assert low < 0.001
    assert bottom < 20


def test_every_operation_of_a_twentieth_of_the_time_is_named():
    rows = [
        row("a.x", "Under it", flops=10**9, seconds=0.049, held=10**7),
        row("a.y", "A twentieth", flops=10**12, seconds=0.05, held=10**9),
        row("a.z", "The longest", flops=10**10, seconds=0.9, held=10**9),
    ]
    (axes,) = drawn(found(rows=tuple(rows))).axes
    names = {text.get_text() for text in axes.texts if str(text.get_gid()).startswith("name of ")}
    assert names == {"A twentieth", "The longest"}


def test_operations_close_to_the_ridge_point_are_named_and_indices_are_below_the_line(tmp_path):
    # four products of at least 13 % of the time each, at 170 to 190 FLOP/byte, right of the ridge point at 153
    xf("roofline", "gpt2", "--on", "a100-sxm-80", "--N", "256", "-o", "a.svg", cwd=tmp_path)
    names = "name of Vocabulary scores, MLP up-projection, MLP down-projection, Q, K, V projections"
    assert names in (tmp_path / "a.svg").read_text("utf-8")
    xf("roofline", "swin", "--on", "h100-sxm", "-o", "b.svg", cwd=tmp_path)
    assert r"<!-- Output projection $\mathregular{W_O}$ -->" in (tmp_path / "b.svg").read_text("utf-8")


PLACES = st.floats(0, 400)


@settings(deadline=None)
@given(
    st.lists(st.builds(Named, PLACES, PLACES, st.floats(1, 20), st.floats(10, 90), st.just(12.0)), max_size=8),
    st.lists(st.builds(Named, PLACES, PLACES, st.floats(1, 20)), max_size=8),
    st.lists(st.builds(lambda x, y, w: LabelBox(x, y, x + w, y + 12), PLACES, PLACES, st.floats(1, 90)), max_size=4),
)
def test_a_placed_name_is_on_nothing(points, others, taken):
    frame = LabelBox(0, 0, 400, 400)
    names = [one.box for one in placed(points, others, taken, frame) if one is not None]
    solid = [*taken, *(one.box for one in (*points, *others))]
    assert not any(name.overlaps(box) for name in names for box in solid)
    assert not any(one.overlaps(other) for one, other in combinations(names, 2))
    assert all(frame.holds(name) for name in names)


def test_a_lonely_name_stands_right_of_its_point_and_a_crowded_one_is_tied_to_it():
    one = Named(100, 100, 5, 40, 10)
    frame = LabelBox(0, 0, 400, 400)
    (alone,) = placed([one], [], [], frame)
    assert alone == (LabelBox(109, 95, 149, 105), False)
    (crowded,) = placed([one], [Named(103, 100, 2)], [], frame)
    assert crowded.tied


def test_a_picture_of_vectors_follows_the_reader_s_theme():
    assert b"prefers-color-scheme: dark" in roofline_bytes([found()], ".svg")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """An empty folder for the program's settings."""
    folder = tmp_path / "settings"
    folder.mkdir()
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(folder))
    return folder


@pytest.fixture
def calibrated(settings, monkeypatch):
    """The file of this machine's calibration, one thread, with the peaks of BASELINE."""
    return keep_calibration(settings, monkeypatch, baseline=BASELINE, networks=(), samples=())


def test_predicted_points_are_of_a_model_that_is_not_run(calibrated, tmp_path):
    target = tmp_path / "a.csv"
    words = ("roofline", "vit-ti16", "swin-t", "--N", "64", "--threads", "1", "--predict")
    result = xf(*words, "-o", target)
    assert result.returncode == 0
    assert "timing" not in result.stderr
    rows = table_of(target)
    assert {row["system"] for row in rows} == {"ViT-Ti/16", "Swin-T"}
    assert {row["predicted"] for row in rows} == {"True"}
    for row in rows:
        flops, held, seconds = int(row["flops"]), int(row["operand_bytes"]), float(row["seconds"])
        assert float(row["intensity"]) == pytest.approx(flops / held)
        if flops:
            roof = min(100e9, 20e9 * flops / held)
            assert float(row["of_roof"]) == pytest.approx(flops / seconds / roof)


def test_a_roofline_has_the_formats_of_other_reports(tmp_path):
    words = ("roofline", "gpt2", "--on", "h100-sxm", "--format")
    found = xf(*words, "json", cwd=tmp_path)
    as_csv = table_of(xf(*words, "csv", cwd=tmp_path).stdout)
    assert not list(tmp_path.iterdir())  # a picture is drawn where none of them is asked for
    rows = json.loads(found.stdout)
    assert [row["operation"] for row in rows] == [row["operation"] for row in as_csv]
    scores = next(row for row in rows if row["operation"] == "Vocabulary scores")
    # 1,024 positions, 768 channels, 50,257 words
    assert scores["flops"] == 2 * 1024 * 768 * 50257
    both = xf(*words, "json", "-o", "a.svg", cwd=tmp_path)
    assert json.loads(both.stdout) == rows
    assert (tmp_path / "a.svg").is_file()


@pytest.mark.parametrize(("damaged", "says"), [(False, "is not calibrated"), (True, "is no calibration of xfcost")])
def test_without_a_calibration_the_peaks_are_measured_and_that_is_said(
    settings, calibrated, damaged, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(calibrate, "peaks", lambda device, dtype: BASELINE)
    if damaged:
        calibrated.write_text("{")
    else:
        calibrated.unlink()
    words = ("--size", "32", "--set", "stages.0.depth=1", "--device", "cpu", "--runs", "1", "--threads", "1")
    app(["roofline", "vit-ti16", *words, "-o", str(tmp_path / "roof.svg")], standalone_mode=False)
    told = capsys.readouterr()
    assert "measured just now, not calibrated" in " ".join(told.out.split())
    assert says in told.err
    assert "xfcost calibrate --device cpu" in told.err


def analyzed(*words):
    return stdout_of("analyze", "vit-ti16", *TINY, "--no-trace", "--device", "cpu", "--runs", "1", *words)


def test_the_percent_of_peak_is_told_of_every_operation_and_in_all(calibrated):
    told = json.loads(analyzed("--format", "json"))
    assert told["timing"]["roofs"] == {
        "flops_per_second": 100e9, "bytes_per_second": 20e9, "calibrated": "2026-11-22T10:00:00+00:00",
        "nominal": None,
    }  # fmt: skip
    assert told["timing"]["of_peak"] == pytest.approx(told["totals"]["flops"] / told["timing"]["seconds"] / 100e9)
    timed = [row for row in told["operations"] if row["seconds"]]
    assert len(timed) > 10
    assert [row["of_peak"] for row in timed] == pytest.approx([row["flops_per_second"] / 100e9 for row in timed])
    kinds = told["by_mixing"]
    assert kinds["global"]["of_peak"] == pytest.approx(kinds["global"]["flops_per_second"] / 100e9)
    assert kinds["local"]["of_peak"] is None


@pytest.mark.parametrize("kept", [None, 100])
def test_without_a_usable_calibration_one_line_says_how_to_get_it(calibrated, kept):
    if kept is None:
        calibrated.unlink()
    else:
        calibrated.write_text(calibrated.read_text()[:kept])
    told = " ".join(analyzed().split())
    assert "no percent of peak: " in told
    assert "measure this one: xfcost calibrate --device cpu" in told
    shown = json.loads(analyzed("--format", "json"))
    assert "of_peak" not in shown["timing"] | shown["operations"][0] | shown["by_mixing"]["global"]
    assert "of_peak" not in analyzed("--format", "csv").splitlines()[0]


def test_roofs_are_looked_for_where_the_run_was(calibrated):
    found = api.calibrated_roofs("cpu", "float32", 1)
    assert found == (ROOFS, None)
    other = api.calibrated_roofs("cpu", "float64", 1)
    assert other.roofs is None
    assert "--dtype float64" in other.why
