"""Specs and torch modules timed in turns with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from xfcost.api.predictions import predictors
from xfcost.api.specs import Progress, foreseen, ready_to_time
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.spec.run import Run

if TYPE_CHECKING:
    from xfcost.torch_models.any_model.system import ModuleSystem
    from xfcost.torch_models.timing.systems import OnDevice


class Asked(NamedTuple):
    """Where the systems are timed, and what their ledgers hold beside."""

    device: str
    timing: TimingPlan = USUAL
    trace: bool = False
    orders: bool = True
    strict: bool = False
    mixing: float = 0
    progress: Progress | None = None
    predict: str | None = None
    """Where the seconds are predicted too."""

    def say(self, text: str) -> None:
        """A line before a long step."""
        if self.progress is not None:
            self.progress(text)


def timed_together(systems: Sequence[System], run: Run, asked: Asked) -> list[Ledger]:
    """The ledgers of specs and modules, with seconds measured in turns.

    Raises:
        XfcostError: one can't be run so, or does not fit on the device.
    """
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    names = " and ".join(one.name for one in systems)
    with memory_may_run_out(names, f"running them on {asked.device}"):
        from xfcost.torch_models.timing.devices import check_device
        from xfcost.torch_models.timing.systems import in_turns
        from xfcost.torch_models.timing.turns import REAL

        check_device(asked.device)
        entrants = [_entrant(one, run, asked) for one in systems]
        return in_turns(entrants, asked.device, asked.timing, asked.say, REAL)


def _entrant(system: System, run: Run, asked: Asked) -> OnDevice:
    if isinstance(system, SpecSystem):
        from xfcost.torch_models.timing.systems import SystemOnDevice

        ready = ready_to_time(system.loaded, run, asked.device, trace=asked.trace, orders=asked.orders, say=asked.say)
        if asked.predict is not None:
            ready = foreseen(ready, predictors(asked.predict, asked.timing.threads))
        return SystemOnDevice(ready, asked.device, asked.timing)
    from xfcost.torch_models.any_model.ledger import How

    closed_form = None if asked.orders else False
    how = How(asked.trace, asked.strict, closed_form, asked.mixing, run.plan, asked.device, asked.timing)
    if asked.predict is not None:
        how = how._replace(predict=predictors(asked.predict, asked.timing.threads))
    return cast("ModuleSystem", system).on_device(run, how)
