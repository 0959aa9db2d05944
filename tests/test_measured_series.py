"""What `xfcost measure` measures, and its kept measurements: series, slopes, ratios, crossings, by hand."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measured import HERE, THERE, changed, row, spec_file, timed
from xfcost.api.axes import axis_of, listed_sizes, measured_axis
from xfcost.api.measuring.plan import SweepPlan, SweptSizes, planned, run_of, spec_hash, variants_of
from xfcost.comparing.measured import Ratio, crossings, local_slopes, measured, ratios, upper_slope
from xfcost.comparing.measured_series import (
    METRICS,
    Choice,
    axis_of_rows,
    chosen,
    grouped,
    names_of,
    pairs_of,
)
from xfcost.comparing.sweep import PIXELS, TOKENS, measured_grids, targets_of
from xfcost.ledger.errors import UsageError
from xfcost.ledger.measurements import Measurement, RowOutcome
from xfcost.ledger.metadata import Load
from xfcost.ledger.statistics import Estimate, Interval, exponent, quotient
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.load import load
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem

TIME, MEMORY = METRICS["time"], METRICS["memory"]


def one_series(points, system="A"):
    """Of N -> (seconds, low, high)."""
    return grouped([row(system, N, timed(*spent)) for N, spent in points.items()], TOKENS).series[0]


def test_the_interval_of_a_quotient_reaches_from_end_to_end_and_holds_1_where_theirs_meet():
    found = quotient(Estimate(4, Interval(2, 8)), Estimate(8, Interval(4, 16)))
    assert found == Estimate(2, Interval(0.5, 8))
    assert quotient(Estimate(4, Interval(2, 8)), Estimate(9, Interval(8, 16))).interval.low == 1
    assert quotient(Estimate(4, None), Estimate(8, Interval(4, 16))) == Estimate(2, None)


@given(st.lists(st.tuples(*[st.floats(0.1, 10)] * 3), min_size=2, max_size=2))
def test_the_quotient_the_other_way_round_is_its_inverse(parts):
    first, second = (Estimate(sorted(three)[1], Interval(min(three), max(three))) for three in parts)
    one, other = quotient(first, second), quotient(second, first)
    assert one.value == pytest.approx(1 / other.value)
    assert one.interval == pytest.approx((1 / other.interval.high, 1 / other.interval.low))


def test_an_exponent_is_that_of_a_power_and_carries_both_intervals():
    # 4 ± 1 bits against 0 ± 1 bits over 2 bits of N: (4 ± 2) / 2
    assert exponent(4, Estimate(1, Interval(0.5, 2)), Estimate(16, Interval(8, 32))) == (2, (1, 3))


def test_local_slopes_stand_beside_those_of_the_macs():
    series = one_series({64: (1, 1, 1), 256: (4, 4, 4), 1024: (64, 64, 64)})
    rows = [msgspec.structs.replace(one, counted=msgspec.structs.replace(one.counted, macs=one.configuration.N**2))
            for one in series.rows]  # fmt: skip
    found = local_slopes(msgspec.structs.replace(series, rows=tuple(rows)), TIME)
    assert [(one.first, one.last) for one in found] == [(64, 256), (256, 1024)]
    assert [one.value for one in found] == pytest.approx([1, 2])
    assert [one.beside for one in found] == pytest.approx([2, 2])


def test_the_upper_end_is_the_last_two_octaves_and_at_least_two_points():
    dense = one_series({N: (N, N, N) for N in (16, 100, 200, 256, 300, 400, 800)})
    assert (upper_slope(dense, TIME).first, upper_slope(dense, TIME).last) == (200, 800)
    sparse = one_series({N: (N, N, N) for N in (16, 128, 1024)})
    assert (upper_slope(sparse, TIME).first, upper_slope(sparse, TIME).last) == (128, 1024)
    assert upper_slope(one_series({16: (1, 1, 1)}), TIME) is None


def test_the_upper_end_over_image_sizes_is_one_octave():
    rows = [changed(row("A", side, timed(side, side, side)), size=(side, side)) for side in (100, 150, 200, 300, 400)]
    found = upper_slope(grouped(rows, PIXELS).series[0], TIME)
    assert (found.first, found.last) == (200, 400)


def test_a_peak_is_read_once_and_its_slope_has_no_interval():
    rows = [row("A", N, timed(1.0, peak=peak)) for N, peak in ((64, 100), (128, 200), (256, 800))]
    found = upper_slope(grouped(rows, TOKENS).series[0], MEMORY)
    assert (found.value, found.interval, found.beside) == (pytest.approx(1.5), None, 0.0)


def test_weights_are_taken_off_the_peak():
    # 10 parameters of 4 bytes: 100 - 40 of the measured peak, 60 - 40 of the predicted one
    reading = METRICS["activations"]
    one = row("A", 64, timed(1.0, peak=100))
    assert reading.measured(one) == Estimate(60, None)
    assert reading.beside(one) == 20
    assert reading.measured(row("A", 64, timed(1.0, peak=30))) is None


def test_the_time_of_mixing_is_that_of_all_operations_that_mix():
    reading = METRICS["mixing-time"]
    by_kind = {"per-token": 5.0, "local": 1.0, "global": 2.0}
    outcome = msgspec.structs.replace(timed(8.0), seconds_by_mixing=by_kind)
    assert reading.measured(row("A", 64, outcome)) == Estimate(3.0, None)
    assert reading.measured(row("A", 64)) is None


def test_rows_measured_apart_have_the_ratio_of_their_medians():
    first, second = one_series({64: (2, 1, 4), 128: (1,)}), one_series({64: (4, 2, 8), 128: (3, 2, 4)}, "B")
    with_interval, without = ratios(first, second, TIME)
    assert (with_interval.x, with_interval.value, with_interval.order) == (64, pytest.approx(2), 0)
    assert with_interval.interval == (0.5, 8)
    assert (without.value, without.interval, without.order) == (pytest.approx(3), None, None)


def turns(system, times, load) -> Measurement:
    return row(system, 64, timed(2, 1, 8, times=times, in_turns=True, load=load))


def test_rows_timed_in_turns_have_the_median_of_paired_ratios():
    # turn by turn 2, 2, 2, 2, 2, 4, though the medians are 4.5 and 10
    load = Load(others=0.5, cores=2)
    first = turns("A", (1.0, 2.0, 4.0, 5.0, 8.0, 9.0), load)
    second = turns("B", (2.0, 4.0, 8.0, 10.0, 16.0, 36.0), load)
    series = grouped([first, second], TOKENS).series
    (found,) = ratios(*series, TIME)
    assert (found.value, found.paired, found.interval) == (2, True, (2, 4))
    other = turns("B", (2.0, 4.0, 8.0, 10.0, 16.0, 36.0), Load(others=0.6, cores=2))
    (apart,) = ratios(series[0], grouped([other], TOKENS).series[0], TIME)
    assert not apart.paired
    there = msgspec.structs.replace(second, machine=THERE)
    (apart,) = ratios(series[0], grouped([there], TOKENS).series[0], TIME)
    assert not apart.paired


def test_a_ratio_of_noisy_rows_is_noisy():
    quiet, loud = one_series({64: (2, 1.9, 2.1)}), one_series({64: (4, 3.9, 4.1)}, "B")
    (found,) = ratios(quiet, loud, TIME)
    assert (found.noisy, found.order) == (False, 1)
    noisy = msgspec.structs.replace(loud.rows[0].outcome.timing, noisy="others")
    row_ = msgspec.structs.replace(loud.rows[0], outcome=RowOutcome(status="measured", timing=noisy))
    (found,) = ratios(quiet, msgspec.structs.replace(loud, rows=(row_,)), TIME)
    assert (found.noisy, found.order) == (True, 1)


def ratio(x, value, low=None, high=None) -> Ratio:
    return Ratio(x=x, first=1.0, second=value, value=value, interval=None if low is None else Interval(low, high))


def test_a_crossing_is_between_points_at_which_a_difference_is_seen():
    points = [ratio(100, 2, 1.5, 2.5), ratio(150, 1.9), ratio(200, 1, 0.5, 2), ratio(400, 0.5, 0.25, 0.75)]
    (found,) = crossings(points)
    assert (found.below, found.above, found.first_below, found.noisy) == (100, 400, True, False)
    (found,) = crossings([*points[:2], msgspec.structs.replace(points[2], noisy=True), points[3]])
    assert found.noisy
    (found,) = crossings([ratio(100, 0.5, 0.25, 0.75), ratio(400, 2, 1.5, 2.5)])
    assert not found.first_below


def test_there_is_no_crossing_without_two_certain_orders():
    assert crossings([ratio(100, 2, 1.5, 2.5), ratio(400, 0.5, 0.25, 1.5)]) == []
    assert crossings([ratio(100, 2, 1.5, 2.5), ratio(400, 0.5)]) == []
    assert crossings([ratio(100, 2, 1.5, 2.5), ratio(200, 0.9, 0.8, 1.1), ratio(400, 3, 2, 4)]) == []
    assert crossings([]) == []


def test_runs_of_one_system_are_series_of_their_own_with_a_name_each():
    rows = [row("A", 64), changed(row("A", 64), attention="fused"), changed(row("A", 64), batch=8), row("B", 64)]
    assert [one.name for one in grouped(rows, TOKENS).series] == [
        "A eager, batch 1", "A fused, batch 1", "A eager, batch 8", "B eager, batch 1",
    ]  # fmt: skip


def test_machines_threads_and_specs_of_one_name_are_never_one_series():
    other = changed(row("A"), spec_hash="0123456789abcdef")
    assert names_of([row("A"), row("A", machine=THERE)]) == ["A on here", "A on there"]
    assert names_of([row("A"), changed(row("A"), threads=1)]) == ["A 4 threads", "A 1 thread"]
    assert names_of([row("A"), other]) == ["A (spec AAAAAAAA)", "A (spec 01234567)"]
    rows = [row("A"), row("A", machine=THERE), changed(row("A"), threads=1), other]
    assert len(grouped(rows, TOKENS).series) == 4


def test_rows_that_were_not_measured_are_kept_apart_and_points_ascend():
    skipped = row("A", 256, RowOutcome(status="skipped", reason="no room"))
    (series,) = grouped([row("A", 128), skipped, row("A", 64)], TOKENS).series
    assert [one.configuration.N for one in series.rows] == [64, 128]
    assert series.missing == (skipped,)


def test_of_one_input_measured_by_n_and_by_image_the_later_row_stands():
    early, late = (
        row("A", 64),
        msgspec.structs.replace(changed(row("A", 64), size=(64, 64)), ended="2025-02-01T00:00:00Z"),
    )
    for rows in ([early, late], [late, early]):
        found = grouped(rows, TOKENS)
        assert (found.series[0].rows, found.double) == ((late,), [early])


def test_the_axis_is_the_image_where_all_rows_are_of_square_images():
    square = changed(row("A"), size=(224, 224))
    assert axis_of_rows([square]) is PIXELS
    assert axis_of_rows([square, changed(row("A"), size=(224, 320))]) is TOKENS
    assert axis_of_rows([square, row("A")]) is TOKENS


def test_series_are_compared_that_differ_in_one_thing():
    rows = [row("A"), row("B"), changed(row("A"), attention="fused"), changed(row("B"), attention="fused")]
    series = grouped(rows, TOKENS).series
    assert pairs_of(series, 4) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert pairs_of([series[0], series[3]], 4) == [(0, 1)]
    modes = grouped(
        [row("A"), changed(row("A"), mode="train"), row("B"), changed(row("B"), mode="train")], TOKENS
    ).series
    assert pairs_of(modes, 4) == [(0, 2), (1, 3)]
    assert pairs_of(modes[:2], 4) == [(0, 1)]
    many = grouped([row(name) for name in "ABCDEF"], TOKENS).series
    assert pairs_of(many, 4) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    assert len(pairs_of(many[:4], 4)) == 6


ROWS = [
    row("A"), row("B"), changed(row("A"), attention="fused"), row("A", 256, machine=THERE),
    changed(row("A", 128), device="cuda:1"),
]  # fmt: skip


def test_what_a_choice_leaves_out_is_said():
    found = chosen(ROWS, Choice(("A",), {"machine": (HERE.host,), "attention": ("eager",)}), "runs.jsonl")
    assert [one.configuration.N for one in found.rows] == [64, 128]
    assert found.left_out == ["1 row of B", "1 row of there", "1 row of fused"]


def test_systems_are_named_by_name_by_file_or_by_a_pattern():
    assert len(chosen(ROWS, Choice(("B.yaml",)), "f").rows) == 1
    assert len(chosen(ROWS, Choice(("*",)), "f").rows) == 5


def test_cuda_is_every_cuda_device_and_a_span_both_its_ends():
    assert [one.configuration.N for one in chosen(ROWS, Choice(fields={"device": ("cuda",)}), "f").rows] == [128]
    spanned = chosen(ROWS, Choice(axis=TOKENS, span=(128, 256)), "f")
    assert [one.configuration.N for one in spanned.rows] == [256, 128]
    assert spanned.left_out == ["3 rows outside N = 128 to 256"]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(("C.yaml",)), "runs.jsonl: has no row of C.yaml; did you mean 'B.yaml' or 'A.yaml'?"),
        (Choice(fields={"dtype": ("float16",)}), "--dtype float16: runs.jsonl has no such row; its rows have float32"),
        (Choice(axis=PIXELS, span=(1, 9)), "--size: runs.jsonl has no such row of a square image"),
        (Choice(axis=TOKENS, span=(7, 8)), "--N 7:8: runs.jsonl has rows at N = 64, 128, 256"),
    ],
)
def test_a_choice_of_no_row_is_an_error_that_says_what_is_there(choice, message):
    with pytest.raises(UsageError) as raised:
        chosen(ROWS, choice, "runs.jsonl")
    assert str(raised.value).startswith(message)


def test_rows_of_several_versions_are_said_to_be():
    other = row("A", 256, versions={"xfcost": "0.1.0", "torch": "2.8.0", "python": "3.11.0"})
    found = measured([row("A"), other], Choice(), "f")
    assert found.notes == ("rows of several versions of torch: 2.7.0, 2.8.0",)


def test_sizes_that_are_listed_are_measured_as_they_are() -> None:
    assert listed_sizes("784,196") == (196, 784)
    assert [listed_sizes(given) for given in ("49:784", "784", "1,x", None)] == [()] * 4
    (grid,) = measured_grids([SpecSystem(load("vit"))], Run(), TOKENS, (196, 3136), listed_sizes("196,784,3136"))
    assert list(grid.points.values()) == [196, 784, 3136]
    assert measured_axis("3136,196", None)[1] == axis_of("3136,196", None)[1] == (196, 3136)


def points(names: list[str], low: int, high: int, number: int, axis: Any = TOKENS) -> list[list[int]]:
    grids = measured_grids(
        [SpecSystem(load(name)) for name in names], Run(), axis, (low, high), targets_of((low, high), number)
    )
    return [list(grid.points.values()) for grid in grids]


def test_targets_have_equal_ratios_and_both_ends() -> None:
    assert targets_of((64, 16384), 9) == [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
    assert targets_of((64, 64), 9) == [64]
    assert targets_of((64, 128), 1) == [64]
    assert targets_of((1, 3), 9) == [1, 2, 3]


def test_images_take_the_nearest_squares_and_sequences_follow_them() -> None:
    # squares near 64, 128, 256, 512, 1024
    squares = [64, 121, 256, 529, 1024]
    assert points(["gpt2", "vit-s8"], 64, 1024, 5) == [squares, squares]
    # alone, a sequence takes the targets themselves
    assert points(["gpt2"], 64, 1024, 5) == [[64, 128, 256, 512, 1024]]


def test_sides_are_multiples_of_the_patches_of_each() -> None:
    # patches of 16 take what patches of 32 take; the sides 96, 190 and 376 have ratios of about 2
    assert points(["vit-ti16", "vit-ti32"], 96, 376, 3, PIXELS) == [[96, 192, 352], [96, 192, 352]]
    assert points(["vit-ti16"], 96, 376, 3, PIXELS) == [[96, 192, 368]]


def test_what_a_system_can_not_have_is_left_out_with_its_reason() -> None:
    (grid,) = measured_grids([SpecSystem(load("gpt2"))], Run(), TOKENS, (256, 4096), targets_of((256, 4096), 5))
    assert grid.points == {0: 256, 1: 512, 2: 1024}
    assert list(grid.refused) == [2048, 4096]
    assert "N can be at most 1024" in grid.refused[2048]


def test_the_nearest_possible_size_is_looked_for() -> None:
    # of squares from 33² to 132² MobileViT has those whose sides are 29 to 32 over a multiple of 32
    assert points(["mobilevit-s"], 33**2, 132**2, 2) == [[61**2, 128**2]]


def plan(tmp_path: Path, **options: Any) -> SweepPlan:
    return planned(
        [str(spec_file(tmp_path, name)) for name in "AB"],
        options,
        SweptSizes(TOKENS, (16, 64), 2),
        TimingPlan(threads=3),
    )


def test_the_order_is_small_to_large_with_the_systems_in_turns(tmp_path: Path) -> None:
    found = [
        (one.configuration.N, one.configuration.batch, one.configuration.attention, one.configuration.system)
        for one in plan(tmp_path, batch="1,2", attention="eager,fused,eager").rows
    ]
    assert found == [
        (N, batch, attention, system)
        for N in (16, 64)
        for batch in (1, 2)
        for attention in ("eager", "fused")
        for system in "AB"
    ]


def test_a_configuration_says_what_runs_and_is_counted(tmp_path: Path) -> None:
    given = {"mode": "prefill", "logits": "all", "dtype": "bf16", "attention": "eager"}
    first = plan(tmp_path, batch="2", **given).rows[0]
    one = first.configuration
    assert (one.device, one.threads, one.compiled, one.dtype) == ("cpu", 3, False, "bfloat16")
    assert one.run_options == {"logits": "all"}
    run = run_of(one)
    assert (run.tokens, run.batch, run.dtype, run.mode, run.logits) == ((16,), 2, "bfloat16", "prefill", "all")
    # per block: q, k, v and out 8·8 each, the MLP 2·8·16; scores and weighted sum 16² ·8 each: times 16 tokens, batch 2
    assert first.counted.macs == 2 * (16 * (4 * 64 + 2 * 128) + 2 * 16 * 16 * 8)
    assert first.counted.by_mixing["global"]["macs"] == 2 * 2 * 16 * 16 * 8
    # 2 heads · 16² scores · 2 samples in bfloat16; the softmax's output beside them
    assert first.counted.attention_bytes == 2 * (2 * 16 * 16 * 2) * 2


def test_options_of_a_mode_go_to_the_modes_that_have_them() -> None:
    one, two = variants_of({"mode": "forward,train", "optimizer": "sgd", "logits": None})
    assert one == {"mode": "forward"}
    assert two == {"mode": "train", "optimizer": "sgd"}


def test_training_counts_its_backward_pass(tmp_path: Path) -> None:
    forward, step = (plan(tmp_path, mode=mode).rows[0].counted for mode in ("forward", "train"))
    assert step.macs == 3 * forward.macs  # both operands of every product get a gradient
    assert step.attention_bytes == forward.attention_bytes // 2  # one of the two matrices is saved
    assert step.flops is None


def test_too_many_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="measure: 20,004 configurations, and at most 10,000 are measured"):
        plan(tmp_path, batch=",".join(map(str, range(1, 5002))))


def test_equal_specs_have_equal_hashes_whatever_they_are_called(tmp_path: Path) -> None:
    one, two = (load(str(spec_file(tmp_path, name))) for name in "AB")
    assert spec_hash(one.spec) == spec_hash(two.spec)
    for setting in ("stages.0.depth=2", "stages.0.pattern.0.0.heads=4", "input.length=32"):
        changed = load(str(tmp_path / "A.yaml"), [setting])
        assert spec_hash(changed.spec) != spec_hash(one.spec), setting
