"""A row of a torch module, in the process that measures it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from xfcost.api.measuring.plan import run_of
from xfcost.api.modules import mixing_seconds, named_module
from xfcost.api.predictions import predictors
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import Configuration, MeasuredMemory, OfModule
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.spec.targets import module_target


def measured_module(
    configuration: Configuration, timing: TimingPlan, begin: Callable[[], None]
) -> tuple[Ledger, MeasuredMemory]:
    """The timed ledger of a module, and its memory, predicted before anything is allocated.

    Raises:
        XfcostError: it can't be loaded here, is another one than was counted, or does not fit.
    """
    from xfcost.torch_models.any_model.ledger import How
    from xfcost.torch_models.any_model.system import lengths_of
    from xfcost.torch_models.timing.devices import threads_set

    target, of = module_target(configuration.target), configuration.module
    if target is None or not isinstance(of, OfModule):
        raise TypeError("expected the configuration of a torch module")
    run, device = run_of(configuration), configuration.device
    module, lengths = named_module(target, of.inputs, of.build, configuration.batch), lengths_of(run)
    how = How(trace=False, closed_form=False, plan=run.plan)
    with threads_set(configuration.threads):
        counted = module.ledger(lengths, how)
        if module.fingerprint() != configuration.spec_hash:
            raise DeviceError(f"{configuration.target}: it was changed after this command had read it; give it again")
        memory = module.memory(lengths, counted, device, begin)
    checked = timing.checks and run.plan is None  # of a module a forward is predicted
    foresee = predictors(device, timing.threads) if checked else None
    timed = how._replace(mixing=mixing_seconds(of.mixing, None), device=device, timing=timing, predict=foresee)
    return module.ledger(lengths, timed), memory


def located(configuration: Configuration) -> Configuration:
    """The same, a module's file with its whole path, as a process in another folder finds it."""
    target = module_target(configuration.target) if configuration.is_module else None
    return configuration if target is None else msgspec.structs.replace(configuration, target=target.absolute)
