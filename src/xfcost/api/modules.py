"""The ledger of a torch module without a spec, given or named."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xfcost.api.specs import Progress, settings_texts
from xfcost.counting.training_plan import make_plan
from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.ledger.grid import check_tokens
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.options import OPTIONS, read_option
from xfcost.ledger.training import Plan
from xfcost.spec.load import Loaded
from xfcost.spec.targets import ModuleTarget

if TYPE_CHECKING:
    import torch

    from xfcost.torch_models.any_model.system import AnyModule
    from xfcost.torch_models.any_model.targets import GivenModule, NamedModule


_MIXING_SECONDS: Final = 10.0


def mixing_seconds(mixing: bool | None, seconds: float | None, *, of_specs: bool = False) -> float:
    """The time in which to find the mixing kinds of a module, or to check a spec's: 10 s, no limit where asked for.

    Raises:
        UsageError: the number is none of seconds; or kinds are to be found `of_specs`, which declare them.
    """
    if seconds is not None and not seconds >= 0:
        raise UsageError(f"--mixing-time {shown(seconds)}: expected seconds from 0, which looks for no kinds")
    if of_specs and (mixing or seconds is not None):
        option = "--mixing" if mixing else "--mixing-time"
        raise UsageError(f"{option}: a spec declares how its operations mix tokens; `analyze --probe` checks it")
    if seconds is None:
        seconds = math.inf if mixing else _MIXING_SECONDS
    return 0 if mixing is False else seconds


def is_module(given: Any) -> bool:
    """Is it a torch module? torch is not imported for the question."""
    torch_loaded = sys.modules.get("torch")
    return torch_loaded is not None and isinstance(given, torch_loaded.nn.Module)


def refuse_class(given: Any) -> None:
    """Refuse a class where a module or a spec is expected.

    Raises:
        UsageError: it is one.
    """
    if isinstance(given, type):
        name = given.__name__
        raise UsageError(f"expected a spec or a torch module, got the class {name}; make a module of it: {name}(…)")


def refuse_of_specs_alone(**options: Any) -> None:
    """Refuse options that have a meaning for specs alone.

    Raises:
        UsageError: one of them is given.
    """
    defaults = {"settings": (), "probe": False} | {name: one.default for name, one in OPTIONS.items()}
    for name, given in options.items():
        if given != defaults.get(name):
            raise UsageError(
                f"{_as_option(name, given)}: that is of specs; a module is counted as it is, on the inputs that it is "
                "given"
            )


def _as_option(name: str, given: Any) -> str:
    """An option as it stands on the command line; one that is none there as in Python."""
    if name == "settings":
        return f"--set {' '.join(map(shown, given))}"
    if name == "probe":
        return "--probe"
    return f"--{name.replace('_', '-')} {shown(given)}" if name in OPTIONS else f"{name}={shown(given)}"


def check_letters(inputs: Any, given: Mapping[str, Any]) -> None:
    """Refuse a number for a letter where the example inputs are no function of it.

    Raises:
        UsageError: N or an image's size is given, and they are none.
    """
    from xfcost.torch_models.any_model.inputs import letters_of

    letters = letters_of(inputs)
    if given.get("N") is not None and "N" not in letters:
        raise UsageError(f"N={shown(given['N'])}: of a module N is the argument of example_inputs, a function of N")
    if given.get("size") is not None and "H" not in letters:
        raise UsageError(
            f"size={shown(given['size'])}: of a module H and W are the arguments of example_inputs, a function of both"
        )


def check_texts(texts: Sequence[str], tokens: Any) -> None:
    """Refuse an N that stands for no letter of the inputs of a named module.

    Raises:
        UsageError: there is one, and they have none.
    """
    from xfcost.torch_models.any_model.inputs import letters_in

    if texts and tokens is not None and "N" not in letters_in(texts):
        raise UsageError(f"--N {shown(tokens)}: the inputs have no letter N, as in --input 1xNx768")


def module_plan(*, settings: Sequence[str], probe: bool, predict: bool, **options: Any) -> Plan | None:
    """The training step that the options of a module ask for; None of a forward.

    Raises:
        UsageError: an option has a meaning for specs alone, or a step is to be predicted.
    """
    mode, optimizer = options.pop("mode", "forward"), options.pop("optimizer", None)
    if mode not in ("forward", "train"):
        options["mode"] = read_option("mode", mode)
    refuse_of_specs_alone(settings=settings, probe=probe, **options)
    if predict:
        check_predicted_mode(mode)
    return make_plan(mode, optimizer=optimizer)


def check_predicted_mode(mode: str) -> None:
    """Refuse to predict more than a forward of a module.

    Raises:
        UsageError: it is a training step.
    """
    if mode == "train":
        raise UsageError("--predict: of a torch module a forward is predicted; --device times its training step")


def module_account(of: AnyModule, given: Mapping[str, Any], how: Mapping[str, Any]) -> Ledger:
    """The ledger of a module on example inputs; `given` are N and the image's size, `how` the fields of `How`."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(of.title, "running it"):
        from xfcost.torch_models.any_model.inputs import Lengths
        from xfcost.torch_models.any_model.ledger import How

        lengths = Lengths(one_number(given.get("N")), read_option("size", given.get("size")))
        return of.ledger(lengths, How(**how))


def given_module(module: torch.nn.Module, inputs: Any, keywords: Mapping[str, Any] | None) -> GivenModule:
    """A module with example inputs."""
    from xfcost.torch_models.any_model.targets import GivenModule

    return GivenModule(module, inputs, keywords)


def named_module(target: ModuleTarget, inputs: Sequence[str], build: Sequence[str], batch: Any) -> NamedModule:
    """The module that a target names; it is built when it is counted."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(target.text, "loading it"):
        from xfcost.torch_models.any_model.targets import NamedModule

        return NamedModule(target, inputs, build, batch)


def one_number(given: Any) -> int | None:
    """The number for N in the shapes of inputs.

    Raises:
        UsageError: more than one, or none, or one out of range.
    """
    numbers = read_option("N", given)
    if numbers is not None and len(numbers) != 1:
        raise UsageError(f"--N {shown(given)}: expected one number, which stands for N in --input")
    if not numbers:
        return None
    check_tokens(numbers[0])
    return int(numbers[0])


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
