"""When a measurement is said to be noisy, and what to do then."""

import pytest

from xfcost.ledger.metadata import Load
from xfcost.ledger.noise import noise_text
from xfcost.ledger.statistics import Estimate, Interval
from xfcost.ledger.timing_plan import TimingPlan

TIGHT = Estimate(1.0, Interval(0.99, 1.02))
QUIET = Load(others=0.05, cores=2, stolen=0.0, withheld=0.0, frequency=0.9)


def test_a_narrow_interval_on_a_quiet_machine_is_not_noisy():
    assert noise_text(TIGHT, QUIET, 2, TimingPlan()) is None


@pytest.mark.parametrize(
    ("load", "threads", "words"),
    [
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


def test_an_interval_wider_than_was_asked_for_is_noisy():
    wide = Estimate(1.0, Interval(0.8, 1.1))
    assert noise_text(wide, QUIET, 2, TimingPlan(precision=0.2)) is None
    assert noise_text(wide, QUIET, 2, TimingPlan(precision=0.1)) == (
        "the 95 % interval is ±20 %, and more than ±10 %; repeat on a quiet machine or raise --max-time"
    )


def test_too_few_measurements_are_noisy_and_more_are_asked_for_by_the_option_that_was_given():
    few = Estimate(1.0, None)
    assert "fewer than 6 measurements" in noise_text(few, QUIET, 2, TimingPlan())
    assert noise_text(few, QUIET, 2, TimingPlan(runs=3)).endswith("raise --runs")


def test_all_reasons_are_named():
    found = noise_text(Estimate(1.0, None), Load(others=2.0, cores=2), 2, TimingPlan())
    assert found == (
        "other processes kept 2.0 of 2 cores busy; fewer than 6 measurements give no interval; "
        "repeat on a quiet machine or raise --max-time"
    )
