"""The points of a plot over its lines: a few of each system, of the real model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from xfcost.api.options import Progress
from xfcost.api.systems import system_ledger, system_ledgers
from xfcost.comparing.sweep import CountedSweep, shared_points, thinned
from xfcost.counting.system import AccountOptions
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.run import Run

# Points per system, and the seconds above which a forward is not waited for.
_TRACED: Final = 5
_TIMED: Final = 5
_MOST_SECONDS: Final = 20.0


class Pointed(NamedTuple):
    """Sweeps, counted also where they are measured, and the ledgers of the points of each."""

    sweeps: list[CountedSweep]
    points: list[list[Ledger]]


def traced_points(sweeps: Sequence[CountedSweep], run: Run, say: Progress) -> Pointed:
    """The real model traced at a few points."""
    found: list[list[Ledger]] = []
    for one in sweeps:
        found.append([])
        for x in thinned(one.xs, _TRACED):
            say(f"{one.name}, {one.axis.word} = {x:,}")
            how = AccountOptions(trace=True, progress=say)
            found[-1].append(system_ledger(one.system, one.axis.run(run, x), how))
    return Pointed(list(sweeps), found)


def timed_points(sweeps: Sequence[CountedSweep], run: Run, device: str, timing: TimingPlan, say: Progress) -> Pointed:
    """The real models timed at a few points, ascending, in turns at each, until a forward would take too long.

    Raises:
        DeviceError: a system can't run at its first point.
    """
    chosen = shared_points(sweeps, run, _TIMED)
    systems = [_MeasuredSystem(one.sweep, one.xs, say) for one in chosen]
    for x in sorted({x for one in chosen for x in one.xs}):
        waited_for = [one for one in systems if x in one.xs and not one.ends_before(x)]
        _time_in_turns(waited_for, run, x, device, timing, say)
    return Pointed([one.sweep for one in systems], [one.ledgers for one in systems])


class _MeasuredSystem:
    """One system, and what was measured of it so far."""

    def __init__(self, sweep: CountedSweep, xs: Sequence[int], say: Progress) -> None:
        self.sweep, self.xs, self._say = sweep, set(xs), say
        self.ledgers: list[Ledger] = []
        self.ended = False

    def ends_before(self, x: int) -> bool:
        """Did it end, or does it now, since a forward there isn't waited for?"""
        if not self.ended and (why := self._too_long(x)):
            self.end(f"at {x:,} {why}")
        return self.ended

    def end(self, why: str) -> None:
        """Measure no larger points of it."""
        self.ended = True
        self._say(f"{self.sweep.name}: measured up to {self._at(self.sweep.at(self.ledgers[-1]))}: {why}")

    def _at(self, x: int) -> str:
        return f"{self.sweep.axis.word} = {x:,}"

    def _too_long(self, x: int) -> str | None:
        """Why a forward isn't waited for: its MACs, at the rate of the one measured before."""
        if not self.ledgers or self.ledgers[-1].timing is None:
            return None
        before, counted = self.ledgers[-1], self.sweep.ledgers[self.sweep.xs.index(x)]
        rate = self.ledgers[-1].timing.wall / max(before.total("macs") or 0, 1)
        expected = rate * (counted.total("macs") or 0)
        if expected <= _MOST_SECONDS:
            return None
        return f"a forward would take about {expected:.0f} s, and those over {_MOST_SECONDS:.0f} s are not waited for"


def _time_in_turns(
    systems: Sequence[_MeasuredSystem], run: Run, x: int, device: str, timing: TimingPlan, say: Progress
) -> None:
    """Time all of them at `x`; where one can't run there, each alone, and those that can't have ended."""
    if not systems:
        return
    say(f"{' and '.join(one.sweep.name for one in systems)}, {systems[0].sweep.axis.word} = {x:,}")
    try:
        for one, ledger in zip(systems, _timed(systems, run, x, device, timing, say), strict=True):
            one.ledgers.append(ledger)
    except DeviceError as error:
        if len(systems) == 1:
            if not systems[0].ledgers:
                raise
            systems[0].end(str(error))
            return
        for one in systems:
            _time_in_turns([one], run, x, device, timing, say)


def _timed(
    systems: Sequence[_MeasuredSystem], run: Run, x: int, device: str, timing: TimingPlan, say: Progress
) -> list[Ledger]:
    at = systems[0].sweep.axis.run(run, x)
    given = [one.sweep.system for one in systems]
    return system_ledgers(given, at, AccountOptions(device=device, timing=timing, progress=say, orders=False))
