"""Over which N a plot is drawn, which points of time are measured, and that systems take turns at each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import pytest

from xfcost.api.runs import make_run
from xfcost.comparing.sweep import CountedSweep, common_range, shared_points, span_of, sweep
from xfcost.counting.system import System
from xfcost.ledger.errors import DeviceError, UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Timing
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.questions.plot import points
from xfcost.questions.plot.answer import plot
from xfcost.questions.plot.points import timed_points
from xfcost.report.messages import say
from xfcost.spec.load import load
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem
from xfcost.views.plot import chart_figure
from xfcost.views.scaling import scaling_chart


def swept(name: str, low: int, high: int) -> CountedSweep:
    return sweep(name, SpecSystem(load(name)), Run(), (low, high))


def test_gaps_in_the_middle_are_no_end() -> None:
    # MobileViT's patches of 2×2 tile grids of ⌈s/4⌉, ⌈s/8⌉ and ⌈s/16⌉: all three are even where s is 29 to 32 over a
    # multiple of 32.
    one = swept("mobilevit-s", 29**2, 64**2)
    sides = [29, 30, 31, 32, 61, 62, 63, 64]
    assert one.ended is None
    assert [*one.xs] == [side**2 for side in sides]
    assert [*one.skipped] == [side**2 for side in range(33, 61)]
    beyond = swept("mobilevit-s", 29**2, 70**2)
    assert (beyond.xs[-1], max(beyond.skipped)) == (64**2, 60**2)


def test_sizes_that_are_listed_are_drawn_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def drawn(*specs: str, **over: str) -> dict[str, list[int]]:
        rows = plot(*specs, metric="macs", **over, progress=say).rows  # type: ignore[arg-type]
        return {name: [row.get("size") or row["N"] for row in rows if row["spec"] == name] for name in specs}

    assert drawn("swin-t", size="512,224,384") == {"swin-t": [224, 384, 512]}  # 384 is padded, 448 would not be
    listed = [196, 676, 3136]
    assert drawn("vit", "gpt2", N="196,676,3136") == {"vit": listed, "gpt2": listed}
    assert "GPT-2 (124M): N = 3,136 is beyond the model's 1,024 learned positions" in capsys.readouterr().err
    assert drawn("vit", "swin-t", N="196,784") == {"vit": [196, 784], "swin-t": [196, 784]}
    with pytest.raises(UsageError, match="--mark 784: expected one of the listed N, as in 196"):
        plot("vit", N="196,676,3136", mark=784)


def test_systems_without_a_common_range_are_refused_with_theirs() -> None:
    small, large = swept("vit", 49, 100), swept("vit", 144, 400)
    with pytest.raises(UsageError, match="no range of N is common to all systems"):
        common_range([small, large], Run())
    both = common_range([swept("vit", 49, 400), swept("vit", 144, 900)], Run())
    assert span_of(both) == (144, 400)
    assert [one.ended for one in both] == [None, None]


RUN = make_run()
SMALL = ("stages.0.depth=1",)


def swept_small(*specs: str, span: tuple[int, int] = (49, 784)) -> list[CountedSweep]:
    return [sweep(name, SpecSystem(load(name, SMALL)), RUN, span) for name in specs]


def timing(*times: float, **more: object) -> Timing:
    given: dict[str, object] = {"device": "cpu", "machine": "abacus", "spread": 0.0, "runs": len(times), "threads": 1}
    ordered = sorted(times)
    given |= {"seconds": ordered[len(times) // 2], "times": times, "interval": (ordered[0], ordered[-1])}
    return Timing(**given | more)


class Device:
    """A device that times whatever it is given, and keeps what was timed together."""

    def __init__(self, refuses: Callable[[str, int], bool] = lambda name, n: False) -> None:
        self.turns: list[tuple[int, list[str]]] = []
        self.refuses = refuses

    def __call__(self, systems: Sequence[System], run: Run, how: object) -> list[Ledger]:
        (n,) = run.tokens or (0,)
        names = [one.name for one in systems]
        if any(self.refuses(name, n) for name in names):
            raise DeviceError(f"no room for {names} at {n}")
        self.turns.append((n, names))
        seconds = n / 1000
        own = timing(*[seconds] * 6, in_turns=len(names) > 1)
        return [msgspec.structs.replace(one.ledger(run), timing=own) for one in systems]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    monkeypatch.setattr(points, "system_ledgers", found)
    return found


def test_all_systems_take_turns_at_the_same_points(device: Device) -> None:
    sweeps = swept_small("vit-ti16", "gpt2")  # square grids, and any N
    found = timed_points(sweeps, RUN, "cpu", TimingPlan(), say)
    names = [one.system.name for one in sweeps]
    assert [together for _, together in device.turns] == [names] * 5
    points = [n for n, _ in device.turns]
    assert points == sorted(points)
    assert (points[0], points[-1]) == (49, 784)
    assert all(math.isqrt(n) ** 2 == n for n in points)
    for one, ledgers in zip(found.sweeps, found.points, strict=True):
        assert [one.at(ledger) for ledger in ledgers] == points
        assert all(ledger.timing is not None and ledger.timing.in_turns for ledger in ledgers)


def test_the_end_of_a_longer_line_is_measured_alone(device: Device) -> None:
    short, long = (
        sweep("short", SpecSystem(load("gpt2", SMALL)), RUN, (64, 256)),
        swept_small("gpt2", span=(64, 1024))[0],
    )
    chosen = shared_points([short, long], RUN, 5)
    assert chosen[0].xs[-1] == 256
    assert chosen[1].xs == (*chosen[0].xs, 1024)
    timed_points([short, long], RUN, "cpu", TimingPlan(), say)
    assert device.turns[-1] == (1024, [long.system.name])


def test_what_a_system_cannot_do_ends_its_points_alone(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps = swept_small("vit-ti16", "gpt2")
    vit, gpt = (one.system.name for one in sweeps)
    device.refuses = lambda name, n: name == gpt and n > 300
    found = timed_points(sweeps, RUN, "cpu", TimingPlan(), say)
    together = [n for n, names in device.turns if names == [vit, gpt]]
    alone = [n for n, names in device.turns if names == [vit]]
    assert max(together) <= 300 < min(alone)
    assert [len(one) for one in found.points] == [len(together) + len(alone), len(together)]
    assert "measured up to N =" in capsys.readouterr().err


def test_a_system_that_runs_nowhere_is_an_error(device: Device) -> None:
    device.refuses = lambda name, n: True
    with pytest.raises(DeviceError, match="no room"):
        timed_points(swept_small("vit-ti16", "gpt2"), RUN, "cpu", TimingPlan(), say)


def test_a_forward_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Device):
        def __call__(self, systems: Sequence[System], run: Run, how: object) -> list[Ledger]:
            ledgers = super().__call__(systems, run, how)
            return [msgspec.structs.replace(one, timing=timing(*[15.0] * 6)) for one in ledgers]

    slow = Slow()
    monkeypatch.setattr(points, "system_ledgers", slow)
    found = timed_points(swept_small("vit-ti16"), RUN, "cpu", TimingPlan(), say)
    assert len(found.points[0]) == 1


def test_intervals_are_drawn_and_ratios_told(device: Device) -> None:
    sweeps = swept_small("vit-ti16", "gpt2")
    found = timed_points(sweeps, RUN, "cpu", TimingPlan(), say)
    live = [
        [msgspec.structs.replace(one, timing=timing(*spent, in_turns=True)) for one in ledgers]
        for ledgers, spent in zip(found.points, ((1.0, 1, 1, 1, 1, 2), (2.0, 2, 2, 2, 2, 6)), strict=True)
    ]
    chart = scaling_chart(found.sweeps, live, "time", mark=None)
    assert chart.points[0].intervals == [(1.0, 2.0)] * 5
    assert "Measured: median, bars its 95 % interval ·" in chart.subtitle
    bars = chart_figure(chart).axes[0].containers[0].lines[2][0]
    assert tuple(bars.get_paths()[0].vertices[:, 1]) == pytest.approx((1.0, 2.0))
    # turn by turn 2, 2, 2, 2, 2, 3
    assert "gpt2 at N = 784: 2× as long as vit-ti16 (2× to 3×)" in chart.summary
