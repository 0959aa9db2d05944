"""The memory that a named module takes: peak of its live tensors predicted, and measured while it is built and run."""

from __future__ import annotations

from collections.abc import Callable

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import Memory
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.targets import NamedModule
from xfcost.torch_models.any_model.timing import SMALLER, needed, predicted, ready_on, told_as_its_own, what_runs
from xfcost.torch_models.any_model.user_errors import original
from xfcost.torch_models.memory.peak import check_room
from xfcost.torch_models.timing.devices import waiting_clock
from xfcost.torch_models.timing.growth import peak_of, repeat
from xfcost.torch_models.timing.refusals import on_device


def memory_of_module(
    module: NamedModule, lengths: Lengths, ledger: Ledger, device: str, begin: Callable[[], None]
) -> Memory:
    """Predicted and measured peak of building the module and running it, or training steps where `ledger` is of one.

    `begin` is called when it is known to fit, before it is built.

    Raises:
        NoRoomError: it does not fit; nothing is allocated, unless the module was made on the CPU.
        UsageError: it does not run there.
    """
    optimizer = None if ledger.training is None else ledger.training.step.optimizer
    tensors = "real" if ledger.module is None else ledger.module.tensors
    with module.as_counted(lengths) as (model, given):
        held = predicted(original(model), given, tensors, optimizer)
        least = needed(original(model), given, held, device, optimizer)
    check_room(least, device, module.title, what_runs(optimizer), SMALLER)
    module.forget()
    begin()

    def run() -> None:
        with module.on_cpu(lengths) as (built, given):
            model = original(built)
            with (
                told_as_its_own(model, device),
                on_device(module.title, device, ledger.metadata.dtype),
                ready_on(device, model, given, optimizer, waiting_clock(device)) as ready,
            ):
                repeat(ready.subject.calls[""])

    return Memory(predicted=held, measured=peak_of(run, device, backward=optimizer is not None))
