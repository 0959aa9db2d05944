"""The options of a timing: what they mean, and what is refused."""

import os

import pytest

import xfcost
from helpers import xf
from xfcost.api.options import TIMING_OPTIONS
from xfcost.api.runs import timing_plan
from xfcost.ledger.errors import UsageError
from xfcost.ledger.timing_plan import TimingPlan


def plan(**given):
    return timing_plan("cpu", given)


def test_without_options_the_plan_is_the_usual_one():
    assert plan() == plan(**dict.fromkeys(TIMING_OPTIONS)) == TimingPlan()


def test_options_are_read():
    assert plan(precision="1%", max_time="60", min_time="2s", threads="1", compile=True) == TimingPlan(
        precision=0.01, max_time=60.0, min_time=2.0, threads=1, compile=True
    )
    assert plan(runs=7).runs == 7


def test_a_default_gives_way_to_what_is_given():
    assert plan(max_time="0.1") == TimingPlan(max_time=0.1, min_time=0.1)
    assert plan(min_time="60") == TimingPlan(max_time=60.0, min_time=60.0)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("runs", "0", "--runs 0: expected a whole number from 1"),
        ("precision", "0", "--precision 0: expected a share of the median from 0.000001 to 1, as in --precision 0.05"),
        ("precision", "120%", "expected a share"),
        ("max_time", "-1", "--max-time -1: expected a number from 0.001"),
        ("min_time", "soon", "--min-time soon: expected a number"),
        ("threads", "0", "--threads 0: expected a number of threads from 1"),
        ("threads", str((os.cpu_count() or 1) + 1), f"from 1 to {os.cpu_count()}"),
    ],
)
def test_values_that_can_not_be_are_refused(option, value, words):
    with pytest.raises(UsageError) as error:
        plan(**{option: value})
    assert words in str(error.value)


def test_options_that_contradict_each_other_are_refused():
    with pytest.raises(UsageError, match="--runs and --max-time: both set how long to measure"):
        plan(runs="3", max_time="5")
    with pytest.raises(UsageError, match="--min-time 9 is more than --max-time 5"):
        plan(min_time="9", max_time="5")


def test_options_of_a_timing_without_a_timing_are_refused():
    with pytest.raises(UsageError, match="--threads: applies only to timed runs; add --device cpu"):
        xfcost.analyze("vit", threads=1, trace=False)
    with pytest.raises(UsageError, match="--compile: applies only to timed runs"):
        xfcost.compare("vit", "swin", compile=True)


@pytest.mark.parametrize(
    "command", [("analyze", "vit"), ("compare", "vit", "swin"), ("plot", "vit", "--metric", "time")]
)
def test_every_command_that_times_has_them(command):
    done = xf(*command, "--device", "cpu", "--runs", "0")
    assert done.returncode == 2
    assert "--runs 0: expected a whole number" in done.stderr
