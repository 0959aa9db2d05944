"""`plot --from`, `compare --from` and `roofline --from`: saved rows; nothing is measured, torch is not imported."""

import json
import math
import subprocess
import sys

import msgspec
import pytest

from helpers import environment, stdout_of, table_of, xf
from measured import changed, row, runs_file, spec_file, timed
from xfcost.api.measured import measured_file
from xfcost.api.measuring.plan import counted_of, run_of, spec_hash
from xfcost.commands.from_file import METRICS_OF_FILES
from xfcost.comparing.measured_series import METRICS, Choice
from xfcost.counting.system import AccountOptions
from xfcost.ledger.metadata import Lanes
from xfcost.ledger.roofline import RooflinePoint
from xfcost.ledger.roofs import Roofs
from xfcost.spec.load import load
from xfcost.systems.spec import SpecSystem
from xfcost.views.scaling import measured_chart

NS = (64, 256, 1024)
DEPTHS = {"A": 1, "B": 2}


def rows_of(folder, system, seconds, **fields):
    """Rows of a small spec, as `measure` would write them; the interval is a tenth wide each way."""
    path = folder / f"{system}.yaml"
    if not path.exists():
        text = spec_file(folder, system).read_text(encoding="utf-8")
        path.write_text(text.replace("depth: 1", f"depth: {DEPTHS[system]}"), encoding="utf-8")
    loaded = load(str(path))
    found = []
    for N, spent in seconds.items():
        outcome = (
            timed(spent, 0.9 * spent, 1.1 * spent, peak=1000 * N, precision=0.1) if isinstance(spent, float) else spent
        )
        one = changed(row(system, N, outcome), target=str(path), spec_hash=spec_hash(loaded.spec), **fields)
        ledger = SpecSystem(loaded).account(run_of(one.configuration), AccountOptions(orders=False))
        found.append(msgspec.structs.replace(one, counted=counted_of(ledger)))
    return found


@pytest.fixture
def runs(tmp_path):
    """A is faster at N = 64, B from 256 on; both quarter their ratio from point to point."""
    first = rows_of(tmp_path, "A", {64: 1.0, 256: 4.0, 1024: 64.0})
    return runs_file(tmp_path / "runs.jsonl", *first, *rows_of(tmp_path, "B", {64: 2.0, 256: 2.0, 1024: 8.0}))


def test_json_has_points_slopes_ratios_and_crossings(runs):
    found = json.loads(xf("compare", "--from", runs, "--format", "json").stdout)
    (pair,) = found["pairs"]
    assert [one["value"] for one in pair["ratios"]] == pytest.approx([2, 0.5, 0.125])
    assert [one["faster"] for one in pair["ratios"]] == ["A", "B", "B"]
    # medians 1 and 2 with a tenth each way
    assert pair["ratios"][0]["interval"] == pytest.approx([1.8 / 1.1, 2.2 / 0.9])
    assert pair["crossovers_measured"] == [{"below": 64, "above": 256, "first_below": True, "noisy": False}]
    time = found["series"][0]["slopes"]["time"]
    assert [one["value"] for one in time["local"]] == pytest.approx([1, 2])
    # MACs: 512·N + 16·N², 12 times as many, and ln 12 over ln 4
    assert time["local"][0]["beside"] == pytest.approx(math.log(12, 4))
    assert (time["upper_end"]["first"], time["upper_end"]["last"]) == (256, 1024)
    assert [one["configuration"]["N"] for one in found["series"][0]["measured"]] == list(NS)


@pytest.fixture
def gpu_runs(tmp_path):
    """Whole calls and the host have a ratio of 2, kernels one of 2 at N = 64 and of 1/2 from 256 on."""
    rows = []
    for system, wall, kernels in (("A", 1.0, (0.1, 0.4, 1.6)), ("B", 2.0, (0.2, 0.2, 0.8))):
        outcomes = {}
        for N, spent in zip(NS, kernels, strict=True):
            lanes = Lanes(
                host=wall / 2, kernels=spent, copies=0.0, launches=3, wall=wall, host_times=(wall / 2,) * 6,
                kernel_times=(spent,) * 6,
            )  # fmt: skip
            outcomes[N] = timed(wall, wall, wall, lanes=lanes, times=(wall,) * 6)
        rows += rows_of(tmp_path, system, outcomes)
    return runs_file(tmp_path / "gpu.jsonl", *rows)


@pytest.mark.parametrize(
    ("lane", "seconds", "ratios"),
    [
        ((), [1.0, 1.0, 1.0], [2, 2, 2]),
        (("--lane", "wall"), [1.0, 1.0, 1.0], [2, 2, 2]),
        (("--lane", "host"), [0.5, 0.5, 0.5], [2, 2, 2]),
        (("--lane", "device"), [0.1, 0.4, 1.6], [2, 0.5, 0.5]),
    ],
)
def test_compare_takes_the_seconds_of_a_lane(gpu_runs, lane, seconds, ratios):
    found = json.loads(xf("compare", "--from", gpu_runs, *lane, "--format", "json").stdout)
    (pair,) = found["pairs"]
    assert [one["value"] for one in pair["ratios"]] == pytest.approx(ratios)
    timings = [one["outcome"]["timing"] for one in found["series"][0]["measured"]]
    assert [one["seconds"] for one in timings] == pytest.approx(seconds)
    # a crossing lies between N = 64 and 256, where the ratio falls from 2 to 1/2: at their geometric mean
    assert [one["above"] for one in pair["crossovers_measured"]] == ([256] if ratios[1] < 1 else [])


def test_plot_draws_kernels_unless_a_lane_is_named(gpu_runs, tmp_path):
    for lane, seconds in (((), [0.1, 0.4, 1.6]), (("--lane", "wall"), [1.0] * 3), (("--lane", "host"), [0.5] * 3)):
        target = tmp_path / "points.csv"
        stdout_of("plot", "--from", gpu_runs, "A", *lane, "-o", target, "--force")
        drawn = [float(one["seconds"]) for one in table_of(target) if one["seconds"]]  # the formula has none
        assert drawn == pytest.approx(seconds)


def test_the_curve_is_the_flops_through_the_largest_point(runs):
    found = measured_file(runs, Choice(), print)
    chart = measured_chart(found, "time", None)
    line, points = chart.lines[0], chart.points[0]
    curve, counted = found.curves["A"], [one.counted.flops for one in found.series[0].rows]
    assert len(curve.xs) > 20
    assert (line.xs[-1], line.values[-1]) == (1024, pytest.approx(64.0))
    at = dict(zip(line.xs, line.values, strict=True))
    assert [at[x] for x in NS] == pytest.approx([64.0 * flops / counted[-1] for flops in counted])
    assert line.name == f"A: FLOPs at {counted[-1] / 64.0 / 1000:.0f} kFLOP/s"
    assert points.intervals == [pytest.approx((0.9 * value, 1.1 * value)) for value in (1.0, 4.0, 64.0)]
    assert points.name == "A, slope 2.00 (1.86 to 2.14) at the upper end"


def test_the_predicted_peak_stands_beside_the_measured_one(runs):
    chart = measured_chart(measured_file(runs, Choice(("A",)), print), "memory", None)
    assert list(chart.lines[0].values) == [60, 60, 60]
    assert (list(chart.points[0].values), chart.points[0].bars()) == ([64000, 256000, 1024000], None)
    assert chart.points[0].name == "A, slope 1.00 at the upper end"


def test_a_spec_that_has_changed_gives_points_and_no_curve(runs, tmp_path):
    text = (tmp_path / "B.yaml").read_text(encoding="utf-8")
    (tmp_path / "B.yaml").write_text(text.replace("ratio: 2", "ratio: 4"), encoding="utf-8")
    (tmp_path / "A.yaml").unlink()
    found = measured_file(runs, Choice(), print)
    assert [curve.missing is None for curve in found.curves.values()] == [False, False]
    chart = measured_chart(found, "time", None)
    assert [line.name for line in chart.lines] == [f"{name}: its points joined, no formula" for name in "AB"]
    assert list(chart.lines[0].values) == [1.0, 4.0, 64.0]


def test_torch_is_not_imported(runs, tmp_path):
    code = """
import sys
from xfcost.__main__ import main
try:
    main()
finally:
    if "torch" in sys.modules:
        sys.exit(3)
"""
    for words in (["compare", "--from", runs], ["plot", "--from", runs, "-o", tmp_path / "a.csv"]):
        assert subprocess.run([sys.executable, "-c", code, *words], env=environment(), check=False).returncode == 0


def test_the_help_of_plot_has_the_metrics_of_files():
    assert all(metric in METRICS_OF_FILES for metric in METRICS)


def test_one_point_is_drawn_without_a_warning(tmp_path):
    runs = runs_file(tmp_path / "runs.jsonl", *rows_of(tmp_path, "A", {64: 1.0}))
    done = xf("plot", "--from", runs, "-o", str(tmp_path / "p.svg"))
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr


# 100 GFLOP/s and 20 GB/s; 40 GFLOP over 2 GB in half a second, and 1 GFLOP over 2 GB in 50 ms, of a second in all
ROOFS = Roofs(flops_per_second=100e9, bytes_per_second=20e9, calibrated="2026-11-22T10:00:00+00:00")
POINTS = (
    RooflinePoint("Projection", "per-token", 0.5, 0.5, 40 * 10**9, 2 * 10**9),
    RooflinePoint("Norm", "local", 0.05, 0.05, 10**9, 2 * 10**9),
)


def with_points(points=POINTS, **more):
    return msgspec.structs.replace(timed(1.0, not_attributed=0.45, **{"roofs": ROOFS} | more), points=points)


@pytest.fixture
def rooflines(tmp_path):
    return runs_file(
        tmp_path / "runs.jsonl", *rows_of(tmp_path, "A", {64: with_points(POINTS[:1]), 256: with_points()})
    )


def test_a_roofline_of_saved_rows_is_of_the_largest_and_under_the_saved_roofs(rooflines, tmp_path):
    done = xf("roofline", "--from", rooflines, cwd=tmp_path, COLUMNS="200")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    # 20 FLOP/byte under the peak, at 80 of 100 GFLOP/s; 0.5 under memory's 10 GFLOP/s, at 20
    assert lines[5:8] == [
        "Projection per-token 500 ms 50.0 % 20 80.0 G 80.0 % compute-bound",
        "Norm local 50.0 ms 5.0 % 0.5 20.0 G 200.0 % memory-bound",
        "not attributed – 450 ms 45.0 % – – – –",
    ]
    assert [
        one["operation"]
        for one in json.loads(stdout_of("roofline", "--from", rooflines, "--N", "64", "--format", "json"))
    ] == ["Projection"]


def test_the_roofs_of_a_device_replace_the_saved_ones(rooflines):
    rows = json.loads(stdout_of("roofline", "--from", rooflines, "--on", "t4", "--format", "json"))
    # the data sheet of the T4: 8.1 TFLOP/s in float32 and 320 GB/s
    assert [one["of_roof"] for one in rows] == pytest.approx([80e9 / (320e9 * 20), 20e9 / (320e9 * 0.5)])
