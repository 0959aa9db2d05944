"""The ledger of a torch module without a spec, given or named."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from xfcost.api.options import Progress, read_option
from xfcost.api.predictions import predictors
from xfcost.api.runs import make_run, run_options
from xfcost.api.specs import AccountOptions, settings_texts
from xfcost.api.without_effect import refuse
from xfcost.counting.on_devices import on_devices
from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.ledger.grid import check_tokens
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import PROMPTED
from xfcost.spec.default_options import as_language_model
from xfcost.spec.load import Loaded
from xfcost.spec.run import Run
from xfcost.spec.targets import ModuleTarget

if TYPE_CHECKING:
    import torch

    from xfcost.torch_models.any_model.inputs import Lengths
    from xfcost.torch_models.any_model.ledger import How
    from xfcost.torch_models.any_model.system import AnyModule
    from xfcost.torch_models.any_model.targets import GivenModule, NamedModule


_MIXING_SECONDS: Final = 10.0


def mixing_seconds(mixing: bool | None, seconds: float | None) -> float:
    """The time in which to find the mixing kinds of a module, or to check a spec's: 10 s, no limit where asked for.

    Raises:
        UsageError: the number is none of seconds.
    """
    if seconds is not None and not 0 <= seconds < math.inf:
        raise UsageError(f"--mixing-time {shown(seconds)}: expected seconds from 0, which looks for no kinds")
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


ModuleKind = Literal["given", "named", "config"]
# Options of the run that only some modules take: transformers builds a config in any dtype and attention.
_TAKEN: Final[dict[ModuleKind, tuple[str, ...]]] = {
    "given": (), "named": ("batch",), "config": ("batch", "dtype", "attention"),
}  # fmt: skip


def module_run(given: Mapping[str, Any], kind: ModuleKind) -> Run:
    """The checked run of a module: its mode, its training step, its devices.

    Raises:
        UsageError: an option has a meaning for specs alone, or a mode can't be timed or predicted.
    """
    refuse("a module", {name: value for name, value in given.items() if name not in _TAKEN[kind]})
    mode = read_option("mode", given.get("mode") or "forward")
    if mode == "generate":
        raise UsageError("--mode generate: that is of specs; of a module --mode prefill and --mode decode are counted")
    if mode in PROMPTED or mode == "decode":
        refuse("a module with a cache", given)
    run = make_run(**run_options({name: value for name, value in given.items() if name not in ("N", "size")}))
    return as_built(run) if kind == "config" else run


def as_built(run: Run) -> Run:
    """`run` with the dtype in which the model of a config is built; its attention is by default the class's best."""
    if run.mode not in ("prefill", "decode"):
        return run
    return as_language_model(run)._replace(attention=run.attention)


def how_of(options: AccountOptions, run: Run) -> How:
    """The accounts of a module."""
    from xfcost.torch_models.any_model.ledger import How

    closed_form = None if options.orders else False
    foresee = None if options.predict is None else predictors(options.predict, options.timing.threads)
    return How(
        trace=options.trace, strict=options.strict, closed_form=closed_form,
        mixing=0 if run.mode == "decode" else options.mixing, plan=run.plan,
        mode=run.mode, device=options.device, timing=options.timing, predict=foresee,
    )  # fmt: skip


def module_account(of: AnyModule, given: Mapping[str, Any], options: AccountOptions, run: Run) -> Ledger:
    """The ledger of a module on example inputs, on the devices of the run; `given` are the keywords of `analyze`."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(of.title, "running it"):
        from xfcost.torch_models.any_model.inputs import Lengths

        how = how_of(options, run)._replace(
            closed_form=given.get("closed_form"), tokens_of=tuple(given.get("tokens_of") or ()), say=options.say
        )
        lengths = Lengths(one_number(given.get("N")), read_option("size", given.get("size")))
        ledger = of.ledger(lengths, how)
        metadata = msgspec.structs.replace(ledger.metadata, default_note=run.dtype_note)
        return module_on_devices(of, msgspec.structs.replace(ledger, metadata=metadata), lengths, run)


def module_on_devices(of: AnyModule, ledger: Ledger, lengths: Lengths, run: Run) -> Ledger:
    """The ledger of a module on the devices of the run; as it is without them."""
    if run.on is None:
        return ledger
    from xfcost.torch_models.any_model.system import sizes_of

    return on_devices(ledger, run, sizes_of(of, ledger, lengths))


def given_module(module: torch.nn.Module, inputs: Any, keywords: Mapping[str, Any] | None) -> GivenModule:
    """A module with example inputs."""
    from xfcost.torch_models.any_model.targets import GivenModule

    return GivenModule(module, inputs, keywords)


def named_module(
    target: ModuleTarget, inputs: Sequence[str], build: Sequence[str], batch: Any, run: Run | None = None
) -> NamedModule:
    """The module that a target names; it is built when it is counted, that of a config as the `run` says."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    with memory_may_run_out(target.text, "loading it"):
        from xfcost.torch_models.any_model.targets import ConfigOptions, NamedModule

        config = (
            ConfigOptions()
            if run is None or target.kind != "config"
            else ConfigOptions(dtype=run.dtype, attention=run.attention, has_head=run.mode in ("prefill", "decode"))
        )
        return NamedModule(target, inputs, build, int(read_option("batch", batch)), config)


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
