"""Whatever runs on a device, specs and modules, timed in turns; one after the other where not all fit at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_options import TimingPlan
from xfcost.torch_models.memory.peak import check_room, limit_on
from xfcost.torch_models.timing.refusals import on_device
from xfcost.torch_models.timing.subjects import Ready
from xfcost.torch_models.timing.turns import Measured, Meters, take_turns

Say = Callable[[str], None]


class Entrant(Protocol):
    """What is timed, alone or with others."""

    @property
    def name(self) -> str:
        """The system's name."""

    @property
    def dtype(self) -> str:
        """Of its tensors."""

    @property
    def needed(self) -> int:
        """The bytes that must be free."""

    @property
    def what(self) -> str:
        """What is run: `one forward`."""

    def ready(self) -> AbstractContextManager[Ready]:
        """It is built on the device; at the end it is gone."""

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        """Its ledger with what was measured."""


def in_turns(entrants: Sequence[Entrant], device: str, plan: TimingPlan, say: Say, meters: Meters) -> list[Ledger]:
    """The ledgers with measured seconds.

    Raises:
        DeviceError: the device fails, one does not fit, a kernel is missing.
    """
    for one in entrants:
        check_room(one.needed, device, one.name, one.what)
    limit, together = limit_on(device), sum(one.needed for one in entrants)
    if len(entrants) > 1 and together > limit.left:
        say(
            f"timed one after the other, not in turns: all at once would need {together:,} bytes, and {limit.name} "
            f"leaves {limit.left:,}"
        )
        return [ledger for one in entrants for ledger in _timed_group([one], device, plan, say, meters)]
    return _timed_group(entrants, device, plan, say, meters)


def _timed_group(entrants: Sequence[Entrant], device: str, plan: TimingPlan, say: Say, meters: Meters) -> list[Ledger]:
    """Entrants that are all held at once."""
    with ExitStack() as held:
        ready = []
        for one in entrants:
            say(f"building {one.name} on {device} …")
            with on_device(one.name, device, one.dtype):
                ready.append(held.enter_context(one.ready()))
        names = " and ".join(one.name for one in entrants)
        say(f"timing {names} on {device}{' in turns' if len(entrants) > 1 else ''} …")
        with on_device(names, device, entrants[0].dtype):
            found = take_turns([one.subject for one in ready], device, plan, meters)
            peaks = [None if plan.composed else one.peak() for one in ready]
    return [one.ledger(measured, peak) for one, measured, peak in zip(entrants, found, peaks, strict=True)]
