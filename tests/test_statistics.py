"""Medians, intervals and ratios: arithmetic by hand, and what must hold for all numbers."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xfcost.ledger.metadata import Load
from xfcost.ledger.statistics import (
    Estimate,
    Interval,
    interquartile_range,
    median,
    median_interval,
    paired_ratio,
    precision,
)
from xfcost.ledger.timing_plan import TimingPlan, noise_text

SECONDS = st.floats(1e-6, 1e6)


def test_fewer_than_six_values_have_no_interval():
    # 1 - 2/2⁵ = 93.75 %, below 95 %; 1 - 2/2⁶ = 96.875 %.
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([6, 1, 5, 2, 4, 3]) == Interval(1, 6)


def test_an_interval_drops_as_many_of_each_end_as_95_percent_allow():
    # 9 values: P(B ≤ 1) = (1 + 9)/512, twice that is 3.9 %; with P(B ≤ 2) it is 18 %. So the second of each end.
    assert median_interval(range(9)) == Interval(1, 7)
    # 20 values: 2·P(B ≤ 5) = 4.1 %, 2·P(B ≤ 6) = 11.5 %. The sixth of each end.
    assert median_interval(range(20)) == Interval(5, 14)


@given(st.lists(SECONDS, min_size=6, max_size=60))
def test_an_interval_holds_the_median_and_does_not_depend_on_the_order(values):
    interval = median_interval(values)
    assert interval is not None
    assert interval.contains(statistics.median(values))
    assert interval == median_interval(list(reversed(values)))


@given(st.lists(SECONDS, min_size=6, max_size=40), st.sampled_from([0.25, 2.0, 1024.0]))
def test_statistics_scale_with_the_unit(values, unit):
    ours, scaled = median(values), median([value * unit for value in values])
    assert scaled.value == ours.value * unit
    assert scaled.interval == Interval(*(end * unit for end in ours.interval))
    assert precision(scaled) == pytest.approx(precision(ours))


def test_precision_is_the_farther_end_and_one_value_has_no_range():
    # Quartiles of 1, 2, 3, 4, 5 are 2 and 4.
    assert (interquartile_range([7.0]), interquartile_range([1, 2, 3, 4, 5])) == (0.0, 2)
    # 0.4 below and 0.1 above a median of 2.
    assert precision(Estimate(2.0, Interval(1.6, 2.1))) == pytest.approx(0.2)
    assert precision(Estimate(2.0, None)) is None


def test_a_paired_ratio_pairs_the_measurements_of_a_turn():
    slow = paired_ratio([1.0, 1.0, 10.0, 1.0, 1.0, 1.0], [2.0, 2.0, 20.0, 2.0, 2.0, 2.0])
    assert slow == Estimate(2.0, Interval(2.0, 2.0))
    # the machine is slow in other turns each time: sorted by themselves, the same measurements would give 2 throughout
    first, second = (1.0, 3.0, 2.0, 1.0, 3.0, 2.0), (6.0, 2.0, 4.0, 6.0, 2.0, 4.0)
    # 6/1, 2/3, 4/2, 6/1, 2/3, 4/2
    found = paired_ratio(first, second)
    assert found.value == 2.0
    assert found.interval == (2 / 3, 6.0)


TIGHT = Estimate(1.0, Interval(0.99, 1.02))
QUIET = Load(others=0.05, cores=2, stolen=0.0, withheld=0.0, frequency=0.9)


@pytest.mark.parametrize(
    ("load", "threads", "words"),
    [
        (QUIET, 2, None),
        # 2 threads beside 1.2 busy cores need 3.2 of 2
        (Load(others=1.2, cores=2), 2, "other processes kept 1.2 of 2 cores busy"),
        # one thread leaves a core to the others
        (Load(others=1.0, cores=2), 1, None),
        (Load(others=1.15, cores=2), 1, "1.1 of 2 cores"),
        (Load(stolen=0.3), 2, "the host of this virtual machine took 0.3 cores away"),
        (Load(stolen=0.1), 2, None),
        (Load(withheld=0.25), 2, "the cgroup's quota stopped the process for 25 % of the time"),
        (Load(frequency=0.4), 2, "the processor ran at 40 % of its frequency"),
        (Load(frequency=0.6), 2, None),
        (Load(), 2, None),
    ],
)
def test_what_disturbs_is_named(load, threads, words):
    found = noise_text(TIGHT, load, threads, TimingPlan())
    assert found is None if words is None else words in found


def test_an_interval_wider_than_was_asked_for_and_too_few_measurements_are_noisy():
    wide, few = Estimate(1.0, Interval(0.8, 1.1)), Estimate(1.0, None)
    assert noise_text(wide, QUIET, 2, TimingPlan(precision=0.2)) is None
    assert "±20 %, and more than ±10 %" in noise_text(wide, QUIET, 2, TimingPlan(precision=0.1))
    # more are asked for by the option that was given
    assert noise_text(few, QUIET, 2, TimingPlan(runs=3)).endswith("raise --runs")


def test_all_reasons_are_named():
    found = noise_text(Estimate(1.0, None), Load(others=2.0, cores=2), 2, TimingPlan())
    assert found == (
        "other processes kept 2.0 of 2 cores busy; fewer than 6 measurements give no interval; "
        "repeat on a quiet machine or raise --max-time"
    )
