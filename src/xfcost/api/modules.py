"""The ledger of a torch module without a spec, given or named."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xfcost.api.specs import Progress, settings_texts
from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.options import OPTIONS
from xfcost.spec.load import Loaded
from xfcost.spec.targets import ModuleTarget

if TYPE_CHECKING:
    import torch


def is_module(given: Any) -> bool:
    """Is it a torch module? torch is not imported for the question."""
    torch_loaded = sys.modules.get("torch")
    return torch_loaded is not None and isinstance(given, torch_loaded.nn.Module)


def refuse_of_specs_alone(**options: Any) -> None:
    """Refuse options that have a meaning for specs alone.

    Raises:
        UsageError: one of them is given.
    """
    defaults = {"settings": (), "device": None, "probe": False} | {name: one.default for name, one in OPTIONS.items()}
    for name, given in options.items():
        if given != defaults.get(name):
            raise UsageError(
                f"{name}={shown(given)}: that is of specs; a module is counted as it is, on the inputs that it is given"
            )


def module_account(
    module: torch.nn.Module,
    inputs: Any,
    keywords: Mapping[str, Any] | None,
    *,
    trace: bool,
    strict: bool,
    mixing: bool,
) -> Ledger:
    """The ledger of a module on example inputs."""
    from xfcost.torch_models.memory.shortage import memory_may_run_out

    with memory_may_run_out(type(module).__name__, "running it"):
        from xfcost.torch_models.any_model.inputs import example_inputs
        from xfcost.torch_models.any_model.ledger import module_ledger

        given = example_inputs(inputs, keywords)
        on_cpu = (lambda: [(module, given)]) if mixing else None
        return module_ledger(module, given.args, given.kwargs, trace=trace, strict=strict, mixing=on_cpu)


def imported(target: ModuleTarget, settings: Sequence[str] | None, progress: Progress | None) -> Loaded | None:
    """The spec of a config.json; None where no spec can be made of it, and the model of transformers is looked at."""
    from xfcost.importing import loaded_config

    try:
        return loaded_config(Path(target.place), settings_texts(settings))
    except SpecError as error:
        if not os.path.isfile(target.place):
            raise
        if progress is not None:
            reason = str(error).removeprefix(target.place).partition(";")[0].lstrip(":0123456789 ")
            progress(f"no spec of it ({printable(reason, 200)}); its class in transformers is run")
        return None


def named_module_account(target: ModuleTarget, **given: Any) -> Ledger:
    """The ledger of the module that a target names; `given` is what `target_ledger` takes."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(target.text, "running it"):
        from xfcost.torch_models.any_model.targets import target_ledger

        return target_ledger(target, **given)
