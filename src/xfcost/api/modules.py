"""The ledger of a torch module without a spec, given or named."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from xfcost.api.specs import Progress, settings_texts
from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.options import OPTIONS, read_option
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


class ModuleInputs(msgspec.Struct, frozen=True):
    """The inputs of a module as a user gives them: values, or a function of N."""

    inputs: Any
    keywords: Mapping[str, Any] | None
    tokens: int | None


def module_inputs(inputs: Any, keywords: Mapping[str, Any] | None, tokens: int | None) -> ModuleInputs:
    """The inputs, of N `tokens` where they are a function of N.

    Raises:
        UsageError: N has a number, and they are none.
    """
    if tokens is not None and not callable(inputs):
        raise UsageError(f"N={tokens}: of a module N is the argument of example_inputs, a function of N")
    return ModuleInputs(inputs, keywords, tokens)


def module_account(
    module: torch.nn.Module, of: ModuleInputs, *, trace: bool, strict: bool, closed_form: bool | None, mixing: bool
) -> Ledger:
    """The ledger of a module on example inputs."""
    from xfcost.torch_models.memory.shortage import memory_may_run_out

    with memory_may_run_out(type(module).__name__, "running it"):
        from xfcost.torch_models.any_model.in_n import ledger_in_n
        from xfcost.torch_models.any_model.inputs import Given, inputs_at

        def given_at(size: int | None) -> Given:
            return inputs_at(of.inputs, size, of.keywords)

        return ledger_in_n(
            module, given_at, of.tokens, has_n=callable(of.inputs), trace=trace, strict=strict, closed_form=closed_form,
            mixing=(lambda: [(module, given_at(of.tokens))]) if mixing else None,
        )  # fmt: skip


def one_number(given: Any) -> int | None:
    """The number for N in the shapes of inputs.

    Raises:
        UsageError: more than one, or none.
    """
    numbers = read_option("N", given)
    if numbers is not None and len(numbers) != 1:
        raise UsageError(f"--N {shown(given)}: expected one number, which stands for N in --input")
    return int(numbers[0]) if numbers else None


def imported(target: ModuleTarget, settings: Sequence[str] | None, progress: Progress | None) -> Loaded | None:
    """The spec of a config.json; None where no spec can be made of it, and the model of transformers is looked at."""
    from xfcost.importing import loaded_config

    try:
        return loaded_config(Path(target.place), settings_texts(settings))
    except SpecError as error:
        if not _has_model_type(target.place):
            raise
        if progress is not None:
            reason = str(error).removeprefix(target.place).partition(";")[0].lstrip(":0123456789 ")
            progress(f"no spec of it ({printable(reason, 200)}); its class in transformers is run")
        return None


def _has_model_type(path: str) -> bool:
    """Is the file a config of transformers, whether we know it or not?"""
    if not os.path.isfile(path):
        return False
    try:
        import json  # specs and modules need none

        values = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and isinstance(values.get("model_type"), str)


def named_module_account(target: ModuleTarget, **given: Any) -> Ledger:
    """The ledger of the module that a target names; `given` is what `target_ledger` takes."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(target.text, "running it"):
        from xfcost.torch_models.any_model.targets import target_ledger

        return target_ledger(target, **given)
