"""What a user gives -> systems, checked against what each sort can take; and the ledgers of several.

A system is a spec, a published model whose stored counts answer, or a torch module, given or named.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from xfcost.api.options import Progress, read_option
from xfcost.api.refusals import OF_TRAINING, refuse
from xfcost.api.runs import make_run, read_lora, run_options
from xfcost.comparing.sweep import PIXELS, SizeAxis
from xfcost.counting.devices import read_several
from xfcost.counting.system import AccountOptions, System
from xfcost.ledger.errors import NotFetchedError, SpecError, UsageError, printable, shown
from xfcost.ledger.execution import WITH_CACHE, Mode
from xfcost.ledger.grid import check_tokens
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.units import BYTES_PER_ELEMENT, TF32
from xfcost.spec.grammar import Spec, TokenInput
from xfcost.spec.hub import HubName, config_label, hub_name, hub_source
from xfcost.spec.load import Loaded, check_presets, expanded, load, same_model, with_own_settings, with_positions
from xfcost.spec.models import counts_of, listed_name, models
from xfcost.spec.run import Run, is_deployed, with_defaults
from xfcost.spec.targets import ModuleTarget, ModuleTexts, is_gguf, module_target, texts_by_place, writes_text
from xfcost.systems.spec import SpecSystem, timed_in_turns, torch_there

if TYPE_CHECKING:
    from xfcost.ledger.lora import Lora
    from xfcost.systems.module import ModuleSystem
    from xfcost.systems.published import PublishedSystem
    from xfcost.torch_models.any_model.targets import GivenModule, NamedModule, Stored

_PAIR: Final = 2
# Modes in which a torch module is timed, and in which it is compared with other systems.
TIMED_MODES: Final[tuple[Mode, ...]] = ("forward", "train")
COUNTED_MODES: Final[tuple[Mode, ...]] = (*TIMED_MODES, *WITH_CACHE)
# Sizes of the image at which a module is counted first, where they are in the range.
_SIDES: Final = (512, 448, 224, 256)
# Elements that are followed to find mixing kinds: some 20 s on a core of a laptop.
_USUAL_LIMIT: Final = 400_000_000

ModuleKind = Literal["given", "named", "config"]
# Options of the run that only some modules take: inputs that are given have their batch, and transformers builds a
# config in any dtype and attention.
_TAKEN: Final[dict[ModuleKind, tuple[str, ...]]] = {
    "given": (), "named": ("batch",), "config": ("batch", "dtype", "attention"),
}  # fmt: skip


# ── names and texts ──


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


def is_module(given: Any) -> bool:
    """Is it a torch module, or an exported program? torch is not imported for the question."""
    torch_loaded = sys.modules.get("torch")
    return torch_loaded is not None and (isinstance(given, torch_loaded.nn.Module) or is_program(given))


def is_program(given: Any) -> bool:
    """Is it a program of torch.export? That is not imported for the question."""
    export = sys.modules.get("torch.export")
    return export is not None and isinstance(given, export.ExportedProgram)


def refuse_class(given: Any) -> None:
    """Refuse a class where a module or a spec is expected.

    Raises:
        UsageError: it is one.
    """
    if isinstance(given, type):
        name = given.__name__
        raise UsageError(f"expected a spec or a torch module, got the class {name}; make a module of it: {name}(…)")


def mixing_limit(mixing: bool | None, limit: Any = None) -> float:
    """The elements to follow in finding the mixing kinds of a module, or in checking a spec's; no limit if asked for.

    Raises:
        UsageError: the limit is no whole number.
    """
    found = math.inf if mixing else _USUAL_LIMIT
    found = found if limit is None else read_option("mixing_limit", limit)
    return 0 if mixing is False else found


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


# ── one system ──


def open_systems(
    given: Sequence[Any], options: Mapping[str, Any], progress: Progress | None = None, *, patient: bool = False,
    counted: bool = False,
) -> list[System]:  # fmt: skip
    """The systems that a user gives: names of presets, paths, targets and patterns, modules, (module, inputs) pairs.

    `options` are those of a command: settings, and what modules are given. With `patient`, modules are counted at every
    size of a search, however long that takes. With `counted`, of published models their recorded counts are enough.

    Raises:
        XfcostError: a spec can't be read; inputs are of no module.
    """
    if not given:
        raise UsageError("expected a system: a preset, a path to a YAML file, or a torch module")
    settings, examples = options.get("settings"), options.get("example_inputs")
    devices = () if options.get("on") is None else read_several(options["on"])
    options = {**options, "on": devices[0] if devices else None}
    entries: list[Any] = []
    for one in chain.from_iterable(one if isinstance(one, list) else [one] for one in given):
        if is_module(one[0] if isinstance(one, tuple) and len(one) == _PAIR else one):
            entries.append(one)
        else:  # a pattern gives no system twice
            refuse_class(one)
            before = [name for name in entries if isinstance(name, str)]
            entries += expanded([*before, spec_name(one)], models())[len(before) :]
    check_presets(one for one in entries if isinstance(one, str))
    targets = _targets(entries, options, progress, counted=counted)
    named = {place: target for place, target in targets.items() if isinstance(target, ModuleTarget)}
    texts = _texts_of(entries, named, options)
    if all(isinstance(one, str | tuple) for one in entries):
        refuse("a spec", {"example_inputs": examples})
    chosen = {name: read_option(name, options.get(name)) for name in ("dtype", "attention")}
    run = Run(mode=options.get("mode") or "forward", choices=devices, lora=read_lora(options), **chosen)
    systems: list[System | ModuleTarget] = []
    for number, one in enumerate(entries, 1):
        if number in targets:
            systems.append(targets[number])
        elif isinstance(one, str):
            systems.append(SpecSystem(load(one, settings_texts(settings))))
        else:
            module, inputs = one if isinstance(one, tuple) else (one, examples)
            keywords = options.get("example_kwargs")
            with_inputs = given_module(
                module, inputs, keywords, tf32=run.dtype == TF32, batch=options.get("batch"), lora=run.lora
            )
            systems.append(_module_system(with_inputs, patient=patient))
    if not any(isinstance(one, SpecSystem) for one in systems):
        refuse("a module", {"settings": settings})
    _lengthen(systems, options)
    kinds = [writes_text(one.config, run.mode) if isinstance(one, ModuleTarget) else one.kind(run) for one in systems]
    for number, target in named.items():
        config = as_built(run, text=kinds[number - 1] is True, beside=kinds)
        systems[number - 1] = _named_system(target, texts[number], options, config, patient=patient)
    return cast("list[System]", systems)


def _targets(
    entries: list[Any], options: Mapping[str, Any], progress: Progress | None, *, counted: bool
) -> dict[int, ModuleTarget | SpecSystem | PublishedSystem]:
    """What is no spec, by its place; a model that is only on the Hub becomes the one that is here by its name."""
    targets = {}
    for place, one in enumerate(entries, 1):
        try:
            target = _target(one, options, progress, counted)
        except NotFetchedError:
            if (same := same_model(one)) is None:
                raise
            if progress is not None:
                progress(f"{one} is not on this disk: counted as {same}, by its name; --fetch gets its own config")
            entries[place - 1], target = same, _target(same, options, progress, counted)
        if target is not None:
            targets[place] = target
    return targets


def _lengthen(systems: Sequence[System | ModuleTarget], options: Mapping[str, Any]) -> None:
    """Give specs the learned positions that a run reads, with the tokens that it generates."""
    new = int(read_option("new_tokens", options.get("new_tokens")) or 0)
    tokens = tuple(int(one) + new for one in read_option("N", options.get("N")) or ())
    for one in systems if tokens else ():
        if isinstance(one, SpecSystem):
            one.loaded = with_positions(one.loaded, tokens)


def open_one(
    command: str, given: Any, options: Mapping[str, Any], progress: Progress | None, *, counted: bool = False
) -> System:
    """The system of a command that takes one.

    Raises:
        XfcostError: as `open_systems`; or a pattern matches several.
    """
    systems = open_systems([given], options, progress, counted=counted)
    if len(systems) != 1:
        raise UsageError(f"{command}: {shown(given)} stands for {len(systems)} systems; give one")
    return systems[0]


def _texts_of(
    entries: Sequence[Any], named: Mapping[int, ModuleTarget], options: Mapping[str, Any]
) -> dict[int, ModuleTexts]:
    """`inputs` and `build` of the modules that are named, by their places among all systems."""
    if not named and not all(isinstance(one, str) for one in entries):
        refuse("a given module", options)
    given = ModuleTexts(_texts(options.get("inputs")), _texts(options.get("build")))
    return texts_by_place(given, {place: target.text for place, target in named.items()}, len(entries))


def _texts(given: Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _module_system(module: GivenModule | NamedModule, *, patient: bool) -> ModuleSystem:
    from xfcost.systems.module import ModuleSystem

    return ModuleSystem(module, patient=patient)


def _named_system(
    target: ModuleTarget, texts: ModuleTexts, options: Mapping[str, Any], config: Run, *, patient: bool
) -> System:
    """The module, or the graph, that a target names; the module of a config as its run says."""
    if target.kind in ("onnx", "program") and config.lora is not None:
        what = "a graph of operations, and no modules; give the module that it was made of"
        raise UsageError(f"--lora {config.lora.rank}: {printable(target.text, 200)} has {what}")
    if target.kind == "onnx":
        from xfcost.systems.onnx import onnx_system

        batch = options.get("batch")
        return onnx_system(target.place, *texts, None if batch is None else int(read_option("batch", batch)))
    stored = stored_forward(target, options, config)
    return _module_system(named_module(target, *texts, options.get("batch"), config, stored), patient=patient)


def _target(
    one: Any, options: Mapping[str, Any], progress: Progress | None, counted: bool
) -> ModuleTarget | SpecSystem | PublishedSystem | None:
    """The module of a name; of a config.json its spec if there is one; None of specs."""
    if isinstance(one, str) and with_own_settings(one)[1]:
        return None
    if isinstance(one, str) and (model := hub_name(one)) is not None and listed_name(one) is None:
        target = _hub_target(model, options.get("fetch"), progress)
    else:
        target = module_target(one) if isinstance(one, str) else None
    if target is not None and target.checkpoint is not None and hub_name(target.checkpoint) is None:
        from xfcost.importing.configs import checked_place

        target = checked_place(target)
    if counted and (found := recorded_model(target, options)) is not None:
        return found
    loaded = imported(target, options, progress) if target is not None and target.kind == "config" else None
    return target if loaded is None else SpecSystem(loaded)


def _hub_target(model: HubName, fetch: bool | None, progress: Progress | None) -> ModuleTarget | None:
    """The config of a model on the Hub, and its tensors where their headers are known."""
    from xfcost.importing.hub import config_file, tensors_of

    target = module_target(str(config_file(model, fetch=fetch, say=progress)))
    source = None if target is None else hub_source(target.place)
    if target is None or source is None or not tensors_of(source, fetch=fetch, say=progress):
        return target
    return msgspec.structs.replace(target, checkpoint=source.text)


def imported(target: ModuleTarget, given: Mapping[str, Any], progress: Progress | None) -> Loaded | None:
    """The spec of a config.json; None where no spec can be made of it, and the model of transformers is looked at.

    `given` are the options of the command.
    """
    from xfcost.importing import loaded_config
    from xfcost.importing.configs import config_values, weights_at

    try:
        loaded = loaded_config(Path(target.place), settings_texts(given.get("settings")))
        if target.checkpoint is not None:
            weights = weights_at(target, config_values(target.place) or {})
            loaded = msgspec.structs.replace(loaded, weights=weights)
        if (known := target.published) is None:
            return loaded
        spec = msgspec.structs.replace(loaded.spec, name=known.title, paper=known.paper)
        return msgspec.structs.replace(loaded, spec=spec)
    except SpecError as error:
        if not isinstance((config_values(target.place) or {}).get("model_type"), str):  # of transformers
            raise
        if progress is not None and target.published is not None:
            title = target.published.title
            progress(f"{title}: its stored counts do not answer this run; its class in transformers is run …")
        elif progress is not None:
            progress(_counted_by_class(target.place, str(error)))
        return None


def _counted_by_class(place: str, refused: str) -> str:
    """Which class of transformers is run for the config at `place`, of which no spec can be made, and why not."""
    from xfcost.importing.configs import config_values

    values = config_values(place) or {}
    kind, named = values["model_type"], values.get("architectures")
    own = named[0] if isinstance(named, list) and named else named or f"class of model_type {kind}"
    reason = refused.removeprefix(config_label(place)).partition("\n")[0].partition(";")[0].lstrip(":0123456789 ")
    why = f"of model_type {kind}" if reason.startswith("model_type: ") else f"of it: {reason}"
    shown_class, shown_why = printable(str(own), 80), printable(why, 200)
    return f"counted by running transformers' {shown_class}; xfcost has no spec {shown_why}"


def decoding(system: System, name: Any, options: Mapping[str, Any]) -> System | None:
    """The spec or the stored counts that `--mode decode` of a `name` is answered by; None where its class has to run.

    `system` is what answers a forward. Errors are those of `open_one`.
    """
    if not isinstance(name, str | os.PathLike):
        return None
    [entry] = expanded([spec_name(name)], models())
    found = _target(entry, {**options, "mode": "decode"}, None, counted=True)
    if isinstance(found, ModuleTarget):
        return None
    return found or (system if system.loaded is not None else None)


def recorded_model(target: ModuleTarget | None, given: Mapping[str, Any]) -> PublishedSystem | None:
    """The model of the list that a target names, or whose fields its config has.

    None where its recorded counts do not answer, and its class has to run: to be timed, predicted, traced, trained and
    looked into, and in another dtype or attention.
    """
    runs = (
        "device", "predict", "trace", "mixing", "inputs", "build", "tokens_of", "settings", "probe", "cache_in",
        "cache_out", "lora",
    )  # fmt: skip
    if target is None or target.kind != "config" or any(given.get(name) for name in runs):
        return None
    name: str | None = target.text
    listed = name in models()
    if not listed:
        from xfcost.importing import listed_model
        from xfcost.importing.configs import config_values

        name = listed_model(config_values(target.place) or {}, all_fields=not is_gguf(target.place))
    if name is None or counts_of(name) is None:
        return None
    from xfcost.systems.published import published_system

    run = module_run(given, "config", target.place)
    found = published_system(
        name, run.batch, run.mode, eager=run.attention == "eager", target=None if listed else target
    )
    if found is None:
        return None
    found.tf32 = run.dtype == TF32
    return found.answering(run.dtype, run.attention)


def stored_forward(target: ModuleTarget, given: Mapping[str, Any], run: Run) -> Stored | None:
    """The stored counts of the forward of a published model that is trained, of the same dtype and attention."""
    if run.mode != "train":
        return None
    for attention in (run.attention,) if run.attention else ("fused", "eager"):  # the best of its class, by default
        alike = {"mode": "forward", "dtype": run.dtype, "attention": attention, "device": None, "trace": None}
        of_forward = {name: value for name, value in given.items() if name not in (*OF_TRAINING, "on")}
        if (found := recorded_model(target, of_forward | alike)) is not None:
            return found.forward
    return None


def given_module(
    module: Any, inputs: Any, keywords: Mapping[str, Any] | None, *, tf32: bool,
    batch: Any = None, lora: Lora | None = None,
) -> GivenModule:  # fmt: skip
    """A module with example inputs; without them, and of a program, those that are found, of this `batch`.

    `tf32`: are its float32 products in TF32?
    """
    from xfcost.torch_models.any_model.targets import GivenModule

    if lora is not None:
        from xfcost.torch_models.any_model.adapters import with_adapters

        name = type(module).__name__
        if is_program(module):
            raise UsageError(f"--lora {lora.rank}: an exported program has operations and no modules; give the module")
        module = with_adapters(module, lora, name)

    samples = None if batch is None else int(read_option("batch", batch))
    if not is_program(module):
        return GivenModule(module, inputs, keywords, tf32=tf32, samples=samples)
    from xfcost.torch_models.any_model.exported import exported_module

    return GivenModule(exported_module(module), inputs, keywords, tf32=tf32, samples=samples)


def named_module(
    target: ModuleTarget, inputs: Sequence[str], build: Sequence[str], batch: Any, run: Run | None = None,
    stored: Stored | None = None,
) -> NamedModule:  # fmt: skip
    """The module that a target names; it is built when it is counted, that of a config as the `run` says."""
    with torch_there(target.text, "loading it"):
        from xfcost.torch_models.any_model.targets import ConfigOptions, NamedModule

        run = run or Run()
        has_head = run.mode in (*WITH_CACHE, "train")
        config = ConfigOptions(dtype=run.dtype, attention=run.attention, has_head=has_head, lora=run.lora)
        samples = None if batch is None else int(read_option("batch", batch))
        return NamedModule(target, inputs, build, samples, config, stored)


# ── its run ──


def vocabulary_of(system: System) -> int | None:
    """Tokens of the vocabulary that its spec or its config states."""
    from xfcost.importing.configs import config_values

    if system.loaded is None:
        return None if system.config is None else (config_values(system.config) or {}).get("vocab_size")
    stream = system.loaded.spec.decoder
    given = (stream and stream.input) or system.loaded.spec.input
    return given.vocabulary if isinstance(given, TokenInput) else None


def own_run(system: System, given: Mapping[str, Any], *, named: bool) -> Run:
    """The checked run of one system alone, `named` or given: what its sort can't take is refused.

    Raises:
        UsageError: an option has no meaning for it, or can't be.
    """
    if system.loaded is not None:
        of_modules = ("example_inputs", "example_kwargs", "tokens_of", "cache_in", "cache_out", "inputs", "build")
        refuse("a spec", {name: given.get(name) for name in of_modules})
        run = make_run(**run_options(given))
        refuse("a spec", {name: given.get(name) for name in ("probe", "mixing")}, mode=run.mode)
        return run
    has_inputs = given.get("example_inputs") is not None or given.get("example_kwargs")
    kind: ModuleKind = "config" if system.config is not None else "named" if named or not has_inputs else "given"
    run = module_run(given, kind, system.config)
    _check_letters(system.letters, given, named=named)
    tokens = one_number(given.get("N"))
    return run._replace(tokens=None if tokens is None else (tokens,), size=read_option("size", given.get("size")))


def module_run(given: Mapping[str, Any], kind: ModuleKind, config: str | None = None) -> Run:
    """The checked run of a module: its mode, its training step, its devices; `config` is the path of its config.

    Raises:
        UsageError: an option has a meaning only for specs, or a mode can't be timed or predicted.
    """
    taken = (*_TAKEN[kind], *(["dtype"] if given.get("dtype") == TF32 else []))
    refuse("a module", {name: value for name, value in given.items() if name not in taken})
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


def shared_run(run: Run, systems: Sequence[System]) -> Run:
    """`run` with one dtype and one attention for all systems, where it has none."""
    return with_defaults(run, [one.kind(run) for one in systems])


def _check_letters(letters: frozenset[str] | None, given: Mapping[str, Any], *, named: bool) -> None:
    """Refuse a number for a letter that the inputs of a module do not have."""
    if letters is None:
        return
    if given.get("N") is not None and "N" not in letters:
        if named:
            raise UsageError(f"--N {shown(given['N'])}: the inputs have no letter N, as in --input 1xNx768")
        raise UsageError(f"N={shown(given['N'])}: for a module, N is the argument of example_inputs, a function of N")
    if given.get("size") is not None and "H" not in letters and not named:
        raise UsageError(
            f"size={shown(given['size'])}: for a module, H and W are the arguments of example_inputs, a function of "
            "both"
        )


def check_mixing(systems: Sequence[System], options: Mapping[str, Any]) -> None:
    """Refuse to look for the mixing kinds where all systems are specs.

    Raises:
        UsageError: that is asked for.
    """
    if all(one.loaded is not None for one in systems):
        refuse("specs side by side", {name: options.get(name) for name in ("mixing", "mixing_limit")})


def check_options(
    system: System, run: Run, *, device: str | None = None, predict: str | None = None,
    modes: tuple[Mode, ...] = ("forward",),
) -> None:  # fmt: skip
    """Refuse what is for specs only, where it would make systems incomparable; `modes` are those of the others.

    Raises:
        UsageError: such an option is given, and the system is no spec.
    """
    if system.loaded is not None:
        return
    given = {
        "mode": None if run.mode in modes else run.mode,
        "device": device,
        "memory_level": run.memory_level,
        "predict": predict,
    }
    counted = "one forward or step of training" if "train" in modes else "one forward"
    refuse(
        "a module among systems", given, name=printable(system.name, 80), counted=counted, trains=run.mode == "train"
    )


# ── ledgers ──


def system_ledger(system: System, run: Run, how: AccountOptions) -> Ledger:
    """The ledger of one system among others at the size of the run, untimed where it is no spec.

    Raises:
        XfcostError: it can't have that size, or an option is for specs only.
    """
    check_options(system, run, device=how.device, predict=how.predict, modes=COUNTED_MODES)
    return system.account(run, how)


def system_ledgers(systems: Sequence[System], run: Run, how: AccountOptions) -> list[Ledger]:
    """The ledger of every system at the size of the run, as `system_ledger` gives it; all are timed in turns.

    Raises:
        XfcostError: as `system_ledger`.
    """
    if how.device is None:
        return [system_ledger(one, run, how) for one in systems]
    for one in systems:
        check_options(one, run, predict=how.predict, modes=TIMED_MODES)
    return timed_in_turns(systems, run, how)


def with_remarks(system: System, ledger: Ledger) -> Ledger:
    """The ledger with notes on how a module is counted at other sizes."""
    notes = (*system.remarks(), *ledger.metadata.notes)
    return msgspec.structs.replace(ledger, metadata=msgspec.structs.replace(ledger.metadata, notes=notes))


def with_config_dtype(system: System, ledger: Ledger, dtype: str | None) -> Ledger:
    """The ledger, for which no `dtype` was given, with a note where its config states one of other bytes."""
    from xfcost.importing.configs import config_values, stated_dtype

    if dtype is not None:
        return ledger
    if system.loaded is not None:
        stated = system.loaded.dtype
    else:
        stated = None if system.config is None else stated_dtype(config_values(system.config) or {})
    own = ledger.metadata.dtype
    if stated not in BYTES_PER_ELEMENT or BYTES_PER_ELEMENT[stated] == BYTES_PER_ELEMENT[own]:
        return ledger
    return ledger.with_note(f"counted in {own}; the config has {stated}: --dtype {stated}")


def first_sizes(axis: SizeAxis, span: tuple[int, int], mark: int | None = None) -> list[int]:
    """Where a module is tried first: the mark, usual images, the middle on a log axis, its square, both ends."""
    low, high = span
    middle = math.isqrt(low * high)
    usual = _SIDES if axis is PIXELS else ()
    wanted = (*((mark,) if mark else ()), *usual, middle, math.isqrt(middle) ** 2, low, high)
    return [x for x in dict.fromkeys(wanted) if low <= x <= high]
