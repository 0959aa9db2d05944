"""Systems timed in turns with a clock that is handed in: the order, the end, the load. Exact."""

import pytest
import torch

from clocks import Machine
from xfcost.ledger.metadata import Load
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.torch_models.timing.devices import (
    SystemCounters,
    cores,
    load_between,
    physical_cores,
    quota,
    threads_set,
    usable_cpus,
    withheld_seconds,
)
from xfcost.torch_models.timing.kernels import RowSeconds
from xfcost.torch_models.timing.turns import Subject, take_turns, timing_of

# torch's timer calls a function once to find the size of a block, and once more to measure it: in every turn of short
# calls, in the first one of long calls.


def turns_of(machine, plan, **systems):
    return take_turns([Subject({"": call}) for call in systems.values()], "cpu", plan, machine.meters)


@pytest.mark.parametrize(
    ("plan", "seconds", "calls"),
    [
        (TimingPlan(runs=2), (1.0, 3.0), "ABAABBAB"),
        # every turn of short calls begins with one that is not counted: a turn measures a tenth of --min-time, 0.05 s
        (TimingPlan(runs=2, min_time=0.5), (0.1, 0.1), "ABAABBAABB"),
    ],
)
def test_systems_take_turns_after_a_call_of_each(plan, seconds, calls):
    machine = Machine()
    turns_of(machine, plan, **{name: machine.taking(name, each) for name, each in zip("AB", seconds, strict=True)})
    assert "".join(machine.calls) == calls


def test_the_call_before_a_measurement_is_not_counted():
    # Warm-up 9 s; then every turn has a call of 0.5 s, which finds the caches empty, and one of 0.1 s.
    machine = Machine()
    call, slow = machine.taking("A", 0.5, 0.1), [9.0]

    def first_slow():
        if slow:
            machine.now += slow.pop()
        else:
            call()

    (found,) = turns_of(machine, TimingPlan(runs=4, min_time=0.5), a=first_slow)
    assert (found.warm_up, found.times) == (9.0, pytest.approx((0.1,) * 4))


def test_turns_go_on_until_every_system_is_precise():
    # B takes 10 s in its first three turns, and 1 s after them. Of n turns the interval leaves the three out when its
    # rank is 4: 2·P(B ≤ 3) ≤ 5 % from n = 15 on, for 2·(1 + 15 + 105 + 455)/2¹⁵ = 3.5 %, and 5.7 % of 14.
    machine = Machine()
    b = machine.taking("B", 1.0, *[10.0] * 4, *[1.0] * 100)
    found = turns_of(machine, TimingPlan(max_time=10**6), a=machine.taking("A", 1.0), b=b)
    assert [len(one.times) for one in found] == [15, 15]


@pytest.mark.parametrize(
    ("plan", "seconds", "turns", "noisy"),
    [
        (TimingPlan(precision=0.05, max_time=1000), 1.0, 6, False),  # the interval is narrow
        (TimingPlan(max_time=1), 60.0, 3, True),  # however long they take
        (TimingPlan(max_time=1), 0.9, 6, False),  # of runs of less than a second
    ],
)
def test_the_fewest_turns(plan, seconds, turns, noisy):
    machine = Machine()
    (found,) = turns_of(machine, plan, a=machine.taking("A", seconds))
    assert (len(found.times), bool(timing_of(found, "cpu", None, 0).noisy)) == (turns, noisy)


def test_the_time_is_of_each_system():
    # Warm-up 2 s, then a call of 1 s of each that is not counted. A's measurements are 2 s and 4 s in turn, so that a
    # turn of both takes 3 s or 5 s: 7, 12, 15, 20, 23, 28, 31, which is past 2·15 s after seven turns.
    machine = Machine()
    call = machine.taking("A", 1.0, 1.0, *[2.0, 4.0] * 100)
    a, b = turns_of(machine, TimingPlan(max_time=15, precision=0.001), a=call, b=machine.taking("B", 1.0))
    assert a.times == (2.0, 4.0, 2.0, 4.0, 2.0, 4.0, 2.0)
    assert b.times == (1.0,) * 7
    assert machine.now == 31


@pytest.mark.parametrize("names", ["A", "AB"])
def test_short_calls_are_measured_for_the_least_time_of_each_system(names):
    # A millisecond: a turn measures a tenth of --min-time of each. Six turns are 6 s of 10 s: they go on to the tenth.
    machine = Machine()
    systems = {name: machine.taking(name, 0.001) for name in names}
    found = turns_of(machine, TimingPlan(min_time=10.0, max_time=1000), **systems)
    assert found[0].times[0] == pytest.approx(0.001)
    assert machine.now >= 10.0 * len(names)
    assert [len(one.times) for one in found] == pytest.approx([10] * len(names), abs=1)


def test_phases_of_a_turn_are_added():
    machine = Machine()
    subject = Subject({"prefill": machine.taking("P", 1.0), "decode": machine.taking("D", 2.0)})
    (found,) = take_turns([subject], "cpu", TimingPlan(runs=6), machine.meters)
    assert found.times == (3.0,) * 6
    timing = timing_of(found, "cpu", None, 0)
    assert [(phase.name, phase.seconds, phase.interval) for phase in timing.phases] == [
        ("prefill", 1.0, (1.0, 1.0)),
        ("decode", 2.0, (2.0, 2.0)),
    ]


def test_rows_are_measured_between_the_turns_and_summed_over_passes_by_their_median():
    machine = Machine()
    passes = iter([{"a": 1.0, "b": 5.0}, {"a": 3.0, "b": 5.0}, {"a": 2.0}])

    def rows():
        machine.calls.append("rows")
        return RowSeconds(next(passes))

    (found,) = take_turns([Subject({"": machine.taking("A", 1.0)}, rows)], "cpu", TimingPlan(runs=3), machine.meters)
    assert machine.calls == ["A", *["A", "A", "rows"], *["A", "rows"] * 2]
    assert found.row_seconds() == {"a": 2.0, "b": 5.0}


def test_rows_are_measured_in_twenty_turns_at_most():
    machine = Machine()
    passes = []
    subject = Subject({"": machine.taking("A", 1.0)}, lambda: passes.append(1) or RowSeconds({"a": 1.0}))
    (found,) = take_turns([subject], "cpu", TimingPlan(runs=23), machine.meters)
    assert (len(found.times), len(found.passes), len(passes)) == (23, 20, 20)


@pytest.mark.parametrize(("lane", "passes"), [("wall", 2), ("device", 3)])
def test_rows_are_measured_in_a_quarter_of_the_time(lane, passes):
    # Warm-up and a call that is not counted, 2 s; measurements of 1 s and 2 s, passes of 2 s. Two passes are 4 s, and a
    # quarter of 12 s is 3 s: 5, 9, 10, 12 s. The kernels are measured by the passes alone: 5, 9, 12 s.
    machine = Machine()

    def rows():
        machine.now += 2.0
        return RowSeconds({"a": 1.0})

    subject = Subject({"": machine.taking("A", 1.0, 1.0, 1.0, 2.0, 1.0, 2.0)}, rows)
    (found,) = take_turns([subject], "cpu", TimingPlan(max_time=12.0, lane=lane), machine.meters)
    assert (len(found.passes), machine.now) == (passes, 12.0)


def test_the_load_is_what_others_used_meanwhile():
    machine = Machine(others=1.2)
    (found,) = turns_of(machine, TimingPlan(runs=6, threads=1), a=machine.taking("A", 1.0))
    assert found.load.others == pytest.approx(1.2)
    timing = timing_of(found, "cpu", None, 0, TimingPlan(runs=6))
    assert "1.2 of 2 cores" in timing.noisy
    assert timing.interval == (1.0, 1.0)
    assert timing.precision == 0.0


def test_counters_become_means():
    start = SystemCounters(busy=100.0, own=10.0, cores=4, stolen=1.0, withheld=0.0, frequency=0.8)
    end = SystemCounters(busy=108.0, own=14.0, cores=4, stolen=2.0, withheld=0.5, frequency=0.7)
    # In 2 s: 8 CPU seconds, 4 of them ours.
    expected = Load(others=2.0, cores=4, stolen=0.5, withheld=0.25, frequency=0.7)
    assert load_between(start, end, 2.0) == expected
    assert load_between(start, start, 0.0).others is None
    # what a system does not tell is missing, and not zero
    start, end = SystemCounters(busy=0.0, own=0.0, cores=1), SystemCounters(busy=1.0, own=1.0, cores=1)
    assert load_between(start, end, 1.0) == Load(others=0.0, cores=1)


V2 = {"/proc/self/mounts": "none /sys/fs/cgroup cgroup2 rw 0 0", "/proc/self/cgroup": "0::/box"}
V1 = {"/proc/self/mounts": "none /cg/cpu cgroup rw,cpu 0 0", "/proc/self/cgroup": "4:cpu,cpuacct:/box"}


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        (V2 | {"/sys/fs/cgroup/box/cpu.max": "150000 100000"}, 1.5),
        (V2 | {"/sys/fs/cgroup/box/cpu.max": "max 100000", "/sys/fs/cgroup/cpu.max": "50000 100000"}, 0.5),
        (V1 | {"/cg/cpu/box/cpu.cfs_quota_us": "50000", "/cg/cpu/box/cpu.cfs_period_us": "100000"}, 0.5),
        (V1 | {"/cg/cpu/box/cpu.cfs_quota_us": "-1", "/cg/cpu/box/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_cgroup(files, cpus, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert quota(files.get) == (64.0 if cpus is None else cpus)


def test_the_seconds_that_a_quota_withheld():
    assert withheld_seconds((V2 | {"/sys/fs/cgroup/box/cpu.stat": "usage_usec 9\nthrottled_usec 2500000"}).get) == 2.5
    assert withheld_seconds((V1 | {"/cg/cpu/box/cpu.stat": "nr_throttled 3\nthrottled_time 2000000000"}).get) == 2.0
    assert withheld_seconds({}.get) is None


def test_hardware_threads_of_one_core_count_once():
    where = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    siblings = {where.format(0): "0,2", where.format(1): "1,3", where.format(2): "0,2", where.format(3): "1,3"}
    assert physical_cores(range(4), siblings.get) == 2
    assert physical_cores([0, 2], siblings.get) == 1


def test_threads_are_set_and_restored():
    seen = []

    def fails():
        with threads_set(1):
            seen.append(torch.get_num_threads())
            raise ValueError("inside")

    with threads_set(2):
        with pytest.raises(ValueError, match="inside"):
            fails()
        assert (seen, torch.get_num_threads()) == ([1], 2)


def test_calls_run_with_the_threads_that_are_reported():
    seen, machine = set(), Machine()
    call = machine.taking("A", 1.0)

    def watching():
        seen.add(torch.get_num_threads())
        call()

    before = torch.get_num_threads()
    (found,) = turns_of(machine, TimingPlan(runs=2, threads=1), a=watching)
    assert seen == {1} == {found.threads}
    assert torch.get_num_threads() == before
    (found,) = turns_of(machine, TimingPlan(runs=1), a=call)
    assert found.threads == cores()
    assert 1 <= cores() <= len(usable_cpus())
