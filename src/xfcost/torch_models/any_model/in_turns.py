"""A module timed in turns with other systems: it is made ready first, and its ledger is made of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xfcost.ledger.ledger import Ledger
from xfcost.spec.run import Run
from xfcost.torch_models.any_model.options import How
from xfcost.torch_models.any_model.system import ModuleSystem, lengths_of
from xfcost.torch_models.any_model.timing import (
    OWN_ERRORS,
    Taken,
    check_plan,
    needed,
    predicted,
    ready_on,
    told_as_its_own,
    what_runs,
)
from xfcost.torch_models.any_model.user_errors import original
from xfcost.torch_models.timing.devices import waiting_clock
from xfcost.torch_models.timing.refusals import on_device
from xfcost.torch_models.timing.subjects import Ready
from xfcost.torch_models.timing.turns import REAL, Measured, Meters, Subject


class ModuleOnDevice:
    """One forward of a module, or a step of its training, as it is timed on a device.

    Args:
        system: the module with its inputs.
        run: their size.
        how: what its ledger holds beside; with a device and a plan.
        meters: read the time and the system.

    Raises:
        UsageError: it does not run on these inputs, or can't be timed as the plan says.
        IncompleteError: an operation is not counted, and `how` is strict.
    """

    def __init__(self, system: ModuleSystem, run: Run, how: How, meters: Meters = REAL) -> None:
        self.system, self.run, self.how, self.meters = system, run, how, meters
        self.device, self.lengths = str(how.device), lengths_of(run)
        check_plan(how.timing, system.name)
        self._optimizer = None if how.plan is None else how.plan.optimizer
        bare = system.module.ledger(self.lengths, How(trace=False, strict=how.strict, closed_form=False, plan=how.plan))
        self.name, self.dtype, self.what = system.name, bare.metadata.dtype, what_runs(self._optimizer)
        tensors = "real" if bare.module is None else bare.module.tensors
        with system.module.on_cpu(self.lengths) as (module, given):
            model = original(module)
            self._predicted = predicted(model, given, tensors, self._optimizer)
            self.needed = needed(model, given, self._predicted, self.device, self._optimizer)

    @contextmanager
    def ready(self) -> Iterator[Ready]:
        """It is on the device; what its own code raises there is its error, whoever else takes turns."""
        with self.system.module.on_cpu(self.lengths) as (module, given):
            model = original(module)

            def own(call: Callable[[], object]) -> Callable[[], object]:
                def told() -> object:
                    try:
                        return call()
                    except OWN_ERRORS:
                        with told_as_its_own(model, self.device), on_device(self.name, self.device, self.dtype):
                            raise

                return told

            clock = waiting_clock(self.device, self.meters.clock)
            with ready_on(self.device, model, given, self._optimizer, clock) as ready:
                calls = {phase: own(call) for phase, call in ready.subject.calls.items()}
                yield Ready(Subject(calls, ready.subject.rows), ready.peak)

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        """Its ledger with what was measured."""
        taken = Taken(measured, peak, self._predicted)
        return self.system.account(self.run, self.how._replace(taken=taken))
