"""The options of a timing, and how times are reported: exactly, of measurements that are made up."""

import json
import os

import msgspec
import pytest
import torch

from helpers import report_text, table_of
from xfcost.api.options import TIMING_OPTIONS
from xfcost.api.runs import make_run, timing_plan
from xfcost.comparing.comparison import compared
from xfcost.counting.forward import count
from xfcost.counting.system import AccountOptions
from xfcost.ledger.achieved import rates
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.join import with_seconds
from xfcost.ledger.json_objects import grouped, records
from xfcost.ledger.metadata import Timing
from xfcost.ledger.statistics import Estimate, Interval, time_ratio
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.memory.peak import bytes_to_run
from xfcost.torch_models.memory.shortage import Limit
from xfcost.torch_models.shared.private_torch import is_compiler_error
from xfcost.torch_models.timing import systems
from xfcost.torch_models.timing.devices import on_device
from xfcost.torch_models.timing.systems import SystemOnDevice, TimedSystem, in_turns
from xfcost.torch_models.timing.turns import REAL
from xfcost.views.measured_compare import exponent_text

SMALL = ["stages.0.depth=2"]


def timing(*times, **more):
    given = {"device": "cpu", "machine": "abacus", "spread": 0.5, "runs": len(times), "threads": 2, "times": times}
    return Timing(**given | {"seconds": sorted(times)[len(times) // 2], "in_turns": True} | more)


def vit_timed(whole=(1.0,), **more):
    """ViT-Ti/32 of two blocks: each operation takes 1/64 s in every block, or not at all in the head."""
    ledger = count(place(load("vit-ti32", SMALL), Run()))
    seconds = {row.path: row.times / 64 for row in ledger.rows if row.stage != "head"}
    return with_seconds(ledger, seconds, dict.fromkeys(seconds, 128), timing(*whole, **more))


def test_rows_and_what_is_not_attributed_are_the_whole():
    ledger = vit_timed()
    # 4 operations of the embedding and 13 in each of 2 blocks: 30/64 s; 34/64 s of the second are not attributed.
    assert ledger.timing.not_attributed == pytest.approx(34 / 64)
    rows = records(ledger)
    assert sum((row["seconds"] or 0) * row["times"] for row in rows) == pytest.approx(1.0)
    assert (rows[-1]["operation"], rows[-1]["macs"]) == ("not attributed", None)
    scores = next(row for row in rows if row["operation"] == "scores")
    # 3 heads of 50² scores, 64 wide: 480,000 MACs, in 1/64 s.
    assert scores["flops_per_second"] == 2 * 480_000 * 64
    assert (scores["operand_bytes"], scores["bytes_per_second"]) == (64, 64 * 64)


def test_the_rate_of_a_kind_is_that_of_all_its_blocks():
    ledger = vit_timed()
    mixing = [row for row in ledger.rows if row.mixing == "global"]
    flops = sum(row.times * row.flops for row in mixing)
    # 3 mixing operations take 1/64 s each in 2 blocks
    found = rates(mixing, trained=False)
    assert found["flops_per_second"] == pytest.approx(flops / (6 / 64))
    assert (found["operand_bytes"], found["bytes_per_second"]) == (6 * 64, 6 * 64 / (6 / 64))
    # weighted by blocks: a row of one block beside one of two
    once, twice = (next(row for row in ledger.rows if row.operation == name) for name in ("projection", "scores"))
    both = rates([once, twice], trained=False)["flops_per_second"]
    assert both == pytest.approx((once.flops + 2 * twice.flops) / (3 / 64))


def test_the_rate_of_a_training_step_has_the_work_of_its_backward_pass():
    ledger = SpecSystem(load("vit-ti32", SMALL)).account(make_run(mode="train"), AccountOptions(orders=False))
    seconds = {row.path: row.times / 64 for row in ledger.rows}
    ledger = with_seconds(ledger, seconds, {}, timing(1.0))
    scores = next(row for row in ledger.rows if row.operation == "scores")
    # QKᵀ of 3 heads, 50² scores, 64 wide: 480,000 MACs forward, and as many for each of the gradients of Q and of K
    assert scores.backward_macs == 2 * 480_000
    assert rates([scores], trained=True)["flops_per_second"] == 2 * 3 * 480_000 * 64
    assert rates([scores], trained=False)["flops_per_second"] == 2 * 480_000 * 64


@pytest.mark.parametrize("by", ["mixing", "stage", "block", "operation"])
def test_groups_add_up_to_the_whole(by):
    groups = grouped(vit_timed(), by)
    assert sum(group["seconds"] or 0 for group in groups) == pytest.approx(1.0)
    assert groups[-1][by] == "not attributed"


def test_a_row_of_the_table_says_what_is_not_attributed():
    text = report_text(vit_timed())
    assert "not attributed" in text
    assert "531 ms  53.1 %" in text
    # Global mixing: scores, softmax and weighted sum of 2 blocks, 6/64 s.
    assert "93.8 ms    9.4 %" in next(line for line in text.splitlines() if line.startswith("global mixing"))


def test_operations_that_add_up_to_more_are_overhead_of_measuring():
    text = report_text(vit_timed(whole=(0.25,)))
    assert "-219 ms" in text
    assert "87.5 % more than the whole" in text


def test_a_noisy_time_is_printed_as_noisy_with_its_interval():
    text = " ".join(report_text(vit_timed(interval=(0.9, 1.25), noisy="others; do this")).split())
    assert "time: 1.00 s a forward, 95 % interval 900 ms to 1.25 s (median of 1, interquartile range 500 ms)" in text
    assert "on cpu, abacus, 2 threads" in text
    assert "noisy: others; do this" in text


def compared_at(first, second, **more):
    loaded = [load("vit-ti32", SMALL), load("vit-s32", SMALL)]
    ledgers = [
        msgspec.structs.replace(count(place(one, Run())), timing=timing(*times, **more))
        for one, times in zip(loaded, (first, second), strict=True)
    ]
    return compared([SpecSystem(one) for one in loaded], ledgers, Run(), thorough=False)


def test_a_ratio_is_the_median_of_turns():
    # Turn by turn 2, 2, 2, 2, 2, 3: the interval of six is all of them. The ratio of the medians would be the same.
    ratio = compared_at((1, 1, 1, 10, 1, 1), (2, 2, 2, 20, 2, 3)).time_ratios["ViT-S/32"]
    assert (ratio.ratio, ratio.interval, ratio.different) == (2.0, (2.0, 3.0), True)


@pytest.mark.parametrize(
    ("first", "second", "more", "words"),
    [
        (1.0, (0.9, 1.1, 0.9, 1.1, 1.05, 1.05), {}, "no difference seen from ViT-Ti/32 (1.05×, 95 % interval 0.9× to"),
        (4.0, (2.0,) * 6, {}, "2× as fast as ViT-Ti/32 (2× to 2×)"),
        (2.0, (4.0, 4.0, 4.0, 4.0, 5.0, 6.0), {}, "2× as long as ViT-Ti/32 (2× to 3×)"),
        # of a single measurement each there is no interval: the least and the greatest ratio of any two
        (1.0, (3.0,) * 6, {"in_turns": False}, "fewer than 6 measurements, not decided: 3× of the time of ViT-Ti/32"),
        # six turns that are all 1.3 or 1.4; others kept the cores busy
        (1.0, (1.3, 1.3, 1.3, 1.3, 1.3, 1.4), {"noisy": "others"}, "noisy, not decided: 1.3× to 1.4× of the time"),
        (1.3, (1.0,) * 6, {"noisy": "others"}, "noisy, not decided: 0.769× of the time of ViT-Ti/32"),
        (1.0, (1.2, 1.3, 1.5), {}, "fewer than 6 measurements, not decided: 1.2× to 1.5× of the time of ViT-Ti/32"),
        # one turn of three says the contrary
        (1.0, (1.3, 0.9, 1.5), {}, "fewer than 6 measurements, not decided: 0.9× to 1.5× of the time of ViT-Ti/32"),
    ],
)
def test_a_ratio_is_a_difference_or_none_or_not_decided(first, second, more, words):
    found = compared_at((first,) * len(second), second, **more)
    assert words in " ".join(report_text(found).split())


def test_intervals_of_ratios():
    # one that ends at 1 contains it
    assert time_ratio(timing(*(1.0,) * 6), timing(1.0, 1.0, 1.0, 2.0, 2.0, 2.0)).different is False
    first, other = timing(1.0, in_turns=False, interval=(1.0, 1.0)), timing(3.0, in_turns=False, interval=(2.0, 4.0))
    found = time_ratio(first, other)
    assert (found.ratio, found.interval, found.noisy) == (pytest.approx(3), pytest.approx((2, 4)), None)


def test_few_measurements_apart_lie_between_the_least_and_the_greatest_ratio_of_any_two():
    # 3/2, 3/1, 8/2, 8/1: all above 1; with 0.5 instead of 3, from 1/4 to 8
    first = timing(1.0, 2.0, in_turns=False)
    found = time_ratio(first, timing(3.0, 8.0, in_turns=False))
    assert (found.between, found.seen, found.different) == ((1.5, 8.0), True, None)
    found = time_ratio(first, timing(0.5, 8.0, in_turns=False))
    assert (found.between, found.seen) == ((0.25, 8.0), False)


def test_a_noisy_ratio_stands_beside_no_time():
    for more, shown in (({}, True), ({"noisy": "others"}, False)):
        text = report_text(compared_at((1.0,) * 6, (2.0,) * 6, **more), "table")
        (line,) = [line for line in text.splitlines() if line.startswith("time  ")]
        assert ("(2×)" in line) == shown


def test_comparisons_have_times_in_csv_and_json():
    found = compared_at((1.0,) * 6, (2.0,) * 6, interval=(0.5, 3.0), noisy="others")
    rows = table_of(report_text(found, "csv"))
    assert [row["seconds"] for row in rows] == ["1.0", "2.0"]
    assert {(row["device"], row["threads"], row["spread"], row["seconds_low"], row["noisy"]) for row in rows} == {
        ("cpu", "2", "0.5", "0.5", "others")
    }
    assert json.loads(found.to_json())["time_ratios"] == {
        "ViT-S/32": {
            "ratio": 2.0, "interval": [2.0, 2.0], "in_turns": True, "between": [2.0, 2.0], "noisy": "others",
            "different": True,
        }
    }  # fmt: skip


def test_a_slope_is_printed_with_its_interval():
    assert exponent_text(Estimate(1.93, Interval(1.85, 2.01))) == "1.93 (1.85 to 2.01)"
    assert exponent_text(Estimate(1.5, None)) == "1.50"


def system(spec, **run):
    architecture = place(load(spec, SMALL), Run(tokens=(4,), **run))
    return TimedSystem(architecture, count(architecture, orders=False))


def test_systems_that_fit_take_turns_and_others_come_one_after_the_other(monkeypatch):
    said, both = [], [system("vit-ti32"), system("vit-ti32")]
    plan = TimingPlan(runs=1, threads=1)

    def timed():
        return in_turns([SystemOnDevice(one, "cpu", plan) for one in both], "cpu", plan, said.append, REAL)

    ledgers = timed()
    assert [ledger.timing.in_turns for ledger in ledgers] == [True, True]
    room = max(bytes_to_run(ledger.timing.predicted_peak_bytes, "cpu") for ledger in ledgers)
    limit = Limit(room, "the test")
    monkeypatch.setattr(systems, "limit_on", lambda device: limit)
    ledgers = timed()
    assert [ledger.timing.in_turns for ledger in ledgers] == [False, False]
    assert any("one after the other, not in turns" in text and "the test" in text for text in said)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"),
            "--dtype float16: torch has no kernel for it on",
        ),
        (RuntimeError("CUDA error: unspecified launch failure\nmore"), "--device cuda: it failed while Toy ran"),
        (None, "--compile: torch could not compile Toy (no graph)"),
    ],
)
def test_what_a_device_refuses_is_one_line(error, words):
    error = error or torch._dynamo.exc.Unsupported("no graph\nmore")  # imported here: it takes seconds
    with pytest.raises(DeviceError) as found, on_device("Toy", "cuda", "float16"):
        raise error
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="ours"), on_device("Toy", "cpu", "float32"):
        raise RuntimeError("ours")
    assert not is_compiler_error(RuntimeError("ours"))


def plan(**given):
    return timing_plan("cpu", given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        (dict.fromkeys(TIMING_OPTIONS), {}),
        ({"runs": 7}, {"runs": 7}),
        ({"precision": "1%", "min_time": "2s", "threads": "1", "compile": True},
         {"precision": 0.01, "min_time": 2.0, "threads": 1, "compile": True}),
        # a default gives way to what is given
        ({"max_time": "0.1"}, {"max_time": 0.1, "min_time": 0.1}),
        ({"min_time": "60"}, {"max_time": 60.0, "min_time": 60.0}),
    ],
)  # fmt: skip
def test_options_are_read(given, expected):
    assert plan(**given) == TimingPlan(**expected)


@pytest.mark.parametrize("threads", [0, (os.cpu_count() or 1) + 1])
def test_threads_are_at_most_those_of_the_machine(threads):
    with pytest.raises(UsageError, match=f"from 1 to {os.cpu_count()}"):
        plan(threads=threads)
