"""The ledger of one system: of a spec counted, traced, timed, probed; of a torch module, given or named."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from xfcost.api.options import Progress, read_option
from xfcost.api.predictions import predictors
from xfcost.api.runs import make_run, refuse, run_options
from xfcost.counting.decoding import check_generation, run_at, traced_steps, with_mode, with_traced_steps
from xfcost.counting.distributed import with_training_plan
from xfcost.counting.forward import count, with_rebuilt_note
from xfcost.counting.training import with_training
from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.ledger.execution import WITH_CACHE, Mode
from xfcost.ledger.grid import check_tokens
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.quantization import WeightFormat, checkpoint_warnings
from xfcost.ledger.timing_plan import USUAL, TimingPlan
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.spec.architecture import Architecture
from xfcost.spec.grammar import Spec
from xfcost.spec.load import Loaded
from xfcost.spec.models import counts_of, models
from xfcost.spec.placement import place
from xfcost.spec.run import Run, cache_of, is_deployed, weights_of, with_defaults
from xfcost.spec.targets import ModuleTarget, ModuleTexts, module_target, texts_by_place

if TYPE_CHECKING:
    import torch

    from xfcost.counting.on_devices import SizedRun
    from xfcost.counting.recorded import RecordedModel
    from xfcost.torch_models.any_model.inputs import Lengths
    from xfcost.torch_models.any_model.ledger import How
    from xfcost.torch_models.any_model.run import CacheNames
    from xfcost.torch_models.any_model.system import AnyModule
    from xfcost.torch_models.any_model.targets import GivenModule, NamedModule
    from xfcost.torch_models.build import BuiltModel
    from xfcost.torch_models.predicting.predict import Predictor
    from xfcost.torch_models.timing.systems import TimedSystem


class AccountOptions(NamedTuple):
    """Which accounts of a system are taken, and how."""

    trace: bool | None = False
    """Are counts compared with the real model? None: those of a module where its run is short."""
    device: str | None = None
    """Where it is timed."""
    predict: str | None = None
    """The device on which its seconds are predicted."""
    timing: TimingPlan = USUAL
    progress: Progress | None = None
    orders: bool = True
    """Do its rows have their orders?"""
    strict: bool = False
    """Is a module refused that has operations that are not counted?"""
    mixing: float = 0
    """How many elements are followed to find the mixing kinds of a module, at most."""

    def say(self, text: str) -> None:
        """A line before a long step."""
        if self.progress is not None:
            self.progress(text)


def account(loaded: Loaded, run: Run, how: AccountOptions | None = None, **options: Any) -> Ledger:
    """The ledger of one loaded spec: counted, then traced and timed; `options` are of `how`, by default with a trace.

    Raises:
        XfcostError: bad input; a DeviceError where memory runs out, with bytes.
    """
    return accounts([loaded], run, (how or AccountOptions(trace=True))._replace(**options))[0]


def accounts(loaded: Sequence[Loaded], run: Run, how: AccountOptions) -> list[Ledger]:
    """The ledgers of several loaded specs, each as `account` gives it; timed in turns on a device.

    Raises:
        XfcostError: as `account`.
    """
    device = how.device
    run = with_defaults(run, [one.spec for one in loaded])
    if device is not None:
        with torch_there(loaded[0].spec.name, f"running it on {device}"):
            from xfcost.torch_models.timing.devices import check_device

            check_device(str(device))
    placed = [(one, *_counted_and_traced(one, run, how)) for one in loaded]
    if how.predict is not None:
        with torch_there(loaded[0].spec.name, "predicting it"):
            by_dtype = predictors(how.predict, how.timing.threads)
            placed = [
                (
                    one,
                    architecture,
                    with_predicted_seconds(_system(one, architecture, ledger, run, how.predict), by_dtype).ledger,
                )
                for one, architecture, ledger in placed
            ]
    if device is None:
        return [ledger for _, _, ledger in placed]
    names = " and ".join(one.spec.name for one in loaded)
    with torch_there(
        loaded[0].spec.name, f"running {names} on {device}" if len(loaded) > 1 else f"running it on {device}"
    ):
        from xfcost.torch_models.timing.systems import timed_in_turns

        systems = [_system(*one, run, str(device)) for one in placed]
        return timed_in_turns(systems, str(device), how.timing, how.say)


def ready_to_time(loaded: Loaded, run: Run, device: str, how: AccountOptions) -> TimedSystem:
    """One loaded spec, counted, to be timed on `device`.

    Raises:
        XfcostError: as `account`.
    """
    return _system(loaded, *_counted_and_traced(loaded, run, how), run, device)


def with_predicted_seconds(system: TimedSystem, by_dtype: Callable[[str], Predictor]) -> TimedSystem:
    """The same, its ledger with the seconds that the device's calibration predicts.

    Raises:
        UsageError: it is not calibrated, or the mode is not predicted.
    """
    from xfcost.torch_models.predicting.predict import predicted

    return system._replace(ledger=predicted(system, by_dtype(system.architecture.dtype)))


def _counted_and_traced(loaded: Loaded, run: Run, how: AccountOptions) -> tuple[Architecture, Ledger]:
    """The architecture of one spec, and its ledger without times."""
    traces = how.trace is not False
    with torch_there(loaded.spec.name, "tracing it") if traces else nullcontext():
        architecture = place(loaded, run)
        check_generation(loaded, run, architecture)
        given = (loaded, run, architecture)
        ledger = with_rebuilt_note(count(architecture, orders=how.orders), loaded, architecture)
        if run.plan is not None:
            ledger = with_training(ledger, architecture, run.plan)
        ledger = _traced(ledger, *given, how.say) if traces else with_mode(ledger, *given)
        if run.mode == "train":  # a trace knows the activations of every model
            return architecture, with_training_plan(ledger, architecture, run.plan)
        if run.on is None and not run.choices:
            return architecture, ledger
        from xfcost.counting.choosing import with_choices
        from xfcost.counting.on_devices import sizes_of_spec, with_devices

        return architecture, with_choices(with_devices(ledger, *given), run, sizes_of_spec(*given))


def _traced(ledger: Ledger, loaded: Loaded, run: Run, architecture: Architecture, say: Progress) -> Ledger:
    """`ledger` joined with the trace, and with the results of its mode; of a generation, some steps are traced."""
    from xfcost.torch_models.shared.environment import collector_paused

    say(f"tracing {ledger.metadata.name} …")
    with collector_paused():
        from xfcost.torch_models.accounts import traced, with_traced

        ledger = traced(architecture, ledger)
    ledger = with_mode(ledger, loaded, run, architecture)
    if ledger.generation is None or ledger.generation.decode is None:
        return ledger
    sizes = traced_steps(ledger.generation)
    for tokens in sizes:
        say(f"tracing the step at {tokens} tokens …")
        ledger = with_traced(ledger, place(loaded, run_at(tokens, architecture, run, "decode")))
    return with_traced_steps(ledger, sizes)


def _system(loaded: Loaded, architecture: Architecture, ledger: Ledger, run: Run, device: str) -> TimedSystem:
    """What its mode runs, to be timed.

    Raises:
        UsageError: the generation has no decode steps.
    """
    from xfcost.torch_models.timing.systems import TimedSystem

    generation = ledger.generation
    if generation is None:
        return TimedSystem(architecture, ledger)
    if generation.decode is None:
        raise UsageError(f"--device {device}: there are no steps to time: {generation.refused}")
    final = max(generation.prompt + generation.new_tokens - 1, generation.prompt)
    return TimedSystem(architecture, ledger, place(loaded, run_at(final, architecture, run, "decode")))


def with_probe(
    loaded: Loaded, run: Run, ledger: Ledger, say: Progress, *, detailed: bool = True, limit: float = inf
) -> Ledger:
    """`ledger` with how the running model mixes tokens: `detailed`, or a check of kinds up to a `limit` of elements."""
    from xfcost.torch_models.shared.environment import collector_paused

    with torch_there(loaded.spec.name, "probing it"), collector_paused():
        from xfcost.torch_models.probing.account import probed

        return probed(place(loaded, run), ledger, say, detailed=detailed, limit=limit)


def built(loaded: Loaded, run: Run, device: str) -> BuiltModel:
    """The torch model of one loaded spec on `device`, with example inputs.

    Raises:
        XfcostError: bad input; a NoRoomError where the weights don't fit.
    """
    with torch_there(loaded.spec.name, "building it"):
        from xfcost.torch_models.build import build
        from xfcost.torch_models.memory.peak import check_room
        from xfcost.torch_models.timing.devices import check_device

        architecture = place(loaded, run)
        if device != "meta":
            check_device(device)
            weights = (count(architecture, orders=False).total("params") or 0) * BYTES_PER_ELEMENT[architecture.dtype]
            check_room(weights, device, loaded.spec.name, "the weights alone")
        return build(architecture, device)


def torch_there(name: str, doing: str) -> AbstractContextManager[None]:
    """Inside it torch is there, and memory that runs out is a DeviceError with bytes."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    return memory_may_run_out(name, doing)


def spec_name(spec: Any) -> str:
    """A preset's name or a path, as text.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(spec, str | os.PathLike):
        name = os.fspath(spec)
        return name if isinstance(spec, str) else os.path.join(".", name)
    raise UsageError(f"expected a preset's name or a path to a YAML file, got {shown(spec)}")


def settings_texts(settings: Sequence[str] | None) -> tuple[str, ...]:
    """`key=value` texts, as after `--set`; None is none.

    Raises:
        UsageError: they are something else.
    """
    given = (settings,) if isinstance(settings, str) else tuple(settings or ())
    for setting in given:
        if not isinstance(setting, str):
            raise UsageError(f"settings: expected texts like 'stages.0.depth=4', got {shown(setting)}")
    return given


# Some 20 s on a core of a laptop.
_USUAL_LIMIT: Final = 400_000_000


def mixing_limit(mixing: bool | None, limit: Any = None) -> float:
    """The elements to follow in finding the mixing kinds of a module, or in checking a spec's; no limit if asked for.

    Raises:
        UsageError: the limit is no whole number.
    """
    found = math.inf if mixing else _USUAL_LIMIT
    found = found if limit is None else read_option("mixing_limit", limit)
    return 0 if mixing is False else found


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
        raise UsageError(f"N={shown(given['N'])}: for a module, N is the argument of example_inputs, a function of N")
    if given.get("size") is not None and "H" not in letters:
        raise UsageError(
            f"size={shown(given['size'])}: for a module, H and W are the arguments of example_inputs, a function of "
            "both"
        )


def check_texts(texts: Sequence[str], tokens: Any) -> None:
    """Refuse an N that no letter in the inputs of a named module uses.

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


def module_run(given: Mapping[str, Any], kind: ModuleKind, config: str | None = None) -> Run:
    """The checked run of a module: its mode, its training step, its devices; `config` is the path of its config.

    Raises:
        UsageError: an option has a meaning only for specs, or a mode can't be timed or predicted.
    """
    refuse("a module", {name: value for name, value in given.items() if name not in _TAKEN[kind]})
    mode = read_option("mode", given.get("mode") or "forward")
    if mode in WITH_CACHE:
        refuse("a module with a cache", given)
    run = make_run(**run_options({name: value for name, value in given.items() if name not in ("N", "size")}))
    if kind != "config":  # which have a dtype of their own
        return run
    return as_built(run._replace(dtype=given.get("dtype")), text=writes_text(config, mode))


def as_built(run: Run, *, text: bool, beside: Collection[Spec | bool] = ()) -> Run:
    """`run` with the dtype and attention in which the model of a config is built; `beside`: the other systems.

    That of a language model (`text`) has by default the best attention of its class.
    """
    if not is_deployed(run) or (run.mode == "train" and not text):
        return run
    chosen = with_defaults(run, [text, *beside])
    return chosen._replace(attention=run.attention) if text else chosen


def writes_text(config: str | None, mode: Mode) -> bool:
    """Is a module, of a config or without one, a language model?

    What takes a cache is one. A config without a class is made with the head of one, where it has words.
    """
    if config is None or mode in WITH_CACHE:
        return mode in WITH_CACHE
    values = _config_values(config) or {}
    named = values.get("architectures")
    if not named:
        return mode == "train" and ("vocab_size" in values or "text_config" in values)
    return re.search("LM|ForConditionalGeneration", str(named)) is not None


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
    with torch_there(of.title, "running it"):
        from xfcost.torch_models.any_model.inputs import Lengths
        from xfcost.torch_models.any_model.run import CacheNames
        from xfcost.torch_models.any_model.system import counted

        how = how_of(options, run)._replace(
            closed_form=given.get("closed_form"),
            tokens_of=tuple(given.get("tokens_of") or ()),
            say=options.say,
            cache=CacheNames(given.get("cache_in"), given.get("cache_out") or given.get("cache_in")),
        )
        lengths = Lengths(one_number(given.get("N")), read_option("size", given.get("size")))
        if run.mode == "generate":
            how.say(f"counting decode steps of {of.title} …")
        ledger = counted(of, lengths, how, run.new_tokens)
        metadata = msgspec.structs.replace(ledger.metadata, default_note=run.dtype_note)
        ledger = msgspec.structs.replace(ledger, metadata=metadata)
        last = metadata.grid_tokens + run.new_tokens - 1
        ledger = ledger.at_positions(last, of.positions)
        return module_on_devices(of, ledger, lengths, run, how.cache)


def module_on_devices(
    of: AnyModule, ledger: Ledger, lengths: Lengths, run: Run, cache: CacheNames | None = None
) -> Ledger:
    """The ledger of a module on the devices of the run; as it is without them."""
    from xfcost.torch_models.any_model.system import sizes_of

    return sized_on_devices(ledger, run, lambda stored: sizes_of(of, stored, lengths, cache), of.weights)


def sized_on_devices(
    ledger: Ledger, run: Run, sizes_of: Callable[[Ledger], SizedRun], published: WeightFormat | str | None
) -> Ledger:
    """A ledger in the formats of the run, on its devices if it has some; `sizes_of` gives its run at other sizes.

    Of the weights that is the `published` format, where the run gives none.
    """
    weights, warnings = weights_of(run, published)
    warnings += checkpoint_warnings(ledger.rows, weights)
    ledger = ledger.stored_as(weights, cache_of(run, published)).with_warnings(warnings)
    if run.plan is not None:
        return with_training_plan(ledger, None, run.plan)
    if run.on is None and not run.choices:
        return ledger
    from xfcost.counting.choosing import with_choices
    from xfcost.counting.on_devices import on_devices

    sizes = sizes_of(ledger)
    return with_choices(on_devices(ledger, run, sizes), run, sizes)


def recorded_model(target: ModuleTarget | None, given: Mapping[str, Any]) -> tuple[RecordedModel, Run] | None:
    """The model of the list that a target names, or whose fields its config has, and its run, without N and size.

    None where its recorded counts do not answer, and its class has to run: to be timed, predicted, traced, trained and
    looked into, and in another dtype or attention.
    """
    runs = (
        "device", "predict", "trace", "mixing", "inputs", "build", "tokens_of", "settings", "probe", "cache_in",
        "cache_out",
    )  # fmt: skip
    if target is None or target.kind != "config" or any(given.get(name) for name in runs):
        return None
    name: str | None = target.text
    config = None
    if name not in models():
        from xfcost.importing import listed_model

        name, config = listed_model(_config_values(target.place) or {}), target.text
    if name is None or counts_of(name) is None:
        return None
    from xfcost.counting.recorded import recorded

    run = module_run(given, "config", target.place)
    found = recorded(name, run.batch, run.mode, eager=run.attention == "eager", config=config)
    answering = found and found.answering(run.dtype, run.attention)
    return None if answering is None else (answering, run)


def given_module(module: torch.nn.Module, inputs: Any, keywords: Mapping[str, Any] | None) -> GivenModule:
    """A module with example inputs."""
    from xfcost.torch_models.any_model.targets import GivenModule

    return GivenModule(module, inputs, keywords)


def stored_forward(target: ModuleTarget, given: Mapping[str, Any], run: Run) -> RecordedModel | None:
    """The stored counts of the forward of a published model that is trained, of the same dtype and attention."""
    if run.mode != "train":
        return None
    for attention in (run.attention,) if run.attention else ("fused", "eager"):  # the best of its class, by default
        alike = {"mode": "forward", "dtype": run.dtype, "attention": attention, "device": None, "trace": None}
        if (found := recorded_model(target, {**given, **alike})) is not None:
            return found[0]
    return None


def named_module(
    target: ModuleTarget, inputs: Sequence[str], build: Sequence[str], batch: Any, run: Run | None = None,
    stored: RecordedModel | None = None,
) -> NamedModule:  # fmt: skip
    """The module that a target names; it is built when it is counted, that of a config as the `run` says."""
    with torch_there(target.text, "loading it"):
        from xfcost.torch_models.any_model.targets import ConfigOptions, NamedModule

        config = (
            ConfigOptions()
            if run is None or target.kind != "config"
            else ConfigOptions(dtype=run.dtype, attention=run.attention, has_head=run.mode in (*WITH_CACHE, "train"))
        )
        return NamedModule(target, inputs, build, int(read_option("batch", batch)), config, stored)


def module_texts(targets: Sequence[str | None], options: Mapping[str, Any]) -> list[dict[str, list[str]]]:
    """`inputs` and `build` of each target, by the options of the command; {} where neither is given.

    Raises:
        UsageError: they are of a target that is no module.
    """
    given = ModuleTexts(tuple(options.get("inputs") or ()), tuple(options.get("build") or ()))
    if not given.inputs and not given.build:
        return [{} for _ in targets]
    modules = {place: one for place, one in enumerate(targets, 1) if one is not None and module_target(one) is not None}
    texts, none = texts_by_place(given, modules, len(targets)), ModuleTexts()
    found = [texts.get(place, none) for place in range(1, len(targets) + 1)]
    return [{"inputs": list(one.inputs), "build": list(one.build)} for one in found]


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


def imported(target: ModuleTarget, given: Mapping[str, Any], progress: Progress | None) -> Loaded | None:
    """The spec of a config.json; None where no spec can be made of it, and the model of transformers is looked at.

    `given` are the options of the command: a spec may have no cache of so many tokens.
    """
    from xfcost.importing import loaded_config

    try:
        cached = 0.0
        if given.get("mode") in WITH_CACHE:
            new_tokens = read_option("new_tokens", given.get("new_tokens")) or 0
            cached = max(read_option("N", given.get("N")) or (inf,)) + new_tokens
        loaded = loaded_config(Path(target.place), settings_texts(given.get("settings")), cached)
        if (known := target.published) is None:
            return loaded
        spec = msgspec.structs.replace(loaded.spec, name=known.title, paper=known.paper)
        return msgspec.structs.replace(loaded, spec=spec)
    except SpecError as error:
        if not isinstance((_config_values(target.place) or {}).get("model_type"), str):  # of transformers
            raise
        if progress is not None and target.published is not None:
            title = target.published.title
            progress(f"{title}: its stored counts do not answer this run; its class in transformers is run …")
        elif progress is not None:
            first = str(error).removeprefix(target.place).partition("\n")[0]
            reason = first.partition(";")[0].lstrip(":0123456789 ")
            progress(f"no spec of it ({printable(reason, 200)}); its class in transformers is run")
        return None


def _config_values(path: str) -> dict[str, Any] | None:
    """The values of a JSON file; None where it has none."""
    import json  # specs and modules need none

    from xfcost.importing.family import CONFIG
    from xfcost.spec.reader import read_file

    try:
        values = json.loads(read_file(Path(path), path, CONFIG))
    except (SpecError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
