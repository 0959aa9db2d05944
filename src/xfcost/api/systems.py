"""The systems of a comparison, a plot or a drawing: specs, and torch modules given or named."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from xfcost.api.accounts import (
    AccountOptions,
    account,
    accounts,
    as_built,
    given_module,
    how_of,
    imported,
    is_module,
    mixing_limit,
    module_on_devices,
    named_module,
    ready_to_time,
    recorded_model,
    settings_texts,
    sized_on_devices,
    spec_name,
    stored_forward,
    torch_there,
    with_predicted_seconds,
    writes_text,
)
from xfcost.api.options import Progress, read_option
from xfcost.api.predictions import predictors
from xfcost.api.runs import refuse
from xfcost.counting.devices import read_several
from xfcost.counting.recorded import RecordedModel
from xfcost.counting.sweep import PIXELS, SizeAxis
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import NoNumbersError, UsageError, XfcostError, printable, shown
from xfcost.ledger.execution import WITH_CACHE, Mode
from xfcost.ledger.ledger import Ledger
from xfcost.spec.grammar import Spec
from xfcost.spec.load import expanded, load
from xfcost.spec.models import config_of, models
from xfcost.spec.placement import place
from xfcost.spec.run import Run, is_language_model, with_defaults
from xfcost.spec.targets import ModuleTarget, ModuleTexts, module_target, texts_by_place

if TYPE_CHECKING:
    from xfcost.torch_models.any_model.system import AnyModule, ModuleSystem
    from xfcost.torch_models.timing.systems import OnDevice

_PAIR: Final = 2
# Modes in which a torch module is timed, and in which it is compared with other systems.
TIMED_MODES: Final[tuple[Mode, ...]] = ("forward", "train")
_COUNTED_MODES: Final[tuple[Mode, ...]] = (*TIMED_MODES, *WITH_CACHE)
# Sizes of the image at which a module is counted first, where they are in the range.
_SIDES: Final = (512, 448, 224, 256)


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
    settings, examples = options.get("settings"), options.get("example_inputs")
    devices = () if options.get("on") is None else read_several(options["on"])
    options = {**options, "on": devices[0] if devices else None}
    entries: list[Any] = []
    for one in given:
        if is_module(one[0] if isinstance(one, tuple) and len(one) == _PAIR else one):
            entries.append(one)
        else:  # a pattern gives no system twice
            before = [name for name in entries if isinstance(name, str)]
            entries += expanded([*before, spec_name(one)], models())[len(before) :]
    targets = {
        place: target for place, one in enumerate(entries, 1) if (target := _target(one, options, progress, counted))
    }
    named = {place: target for place, target in targets.items() if isinstance(target, ModuleTarget)}
    modules = {place: target.text for place, target in named.items()}
    of_modules = ModuleTexts(_texts(options.get("inputs")), _texts(options.get("build")))
    texts = texts_by_place(of_modules, modules, len(entries))
    if all(isinstance(one, str | tuple) for one in entries):
        refuse("a spec", {"example_inputs": examples})
    systems: list[System | ModuleTarget] = []
    for number, one in enumerate(entries, 1):
        if number in named:
            systems.append(named[number])
        elif isinstance(spec := targets.get(number), SpecSystem | RecordedModel):
            systems.append(spec)
        elif isinstance(one, str):
            systems.append(SpecSystem(load(one, settings_texts(settings))))
        else:
            module, inputs = one if isinstance(one, tuple) else (one, examples)
            with_inputs = given_module(module, inputs, options.get("example_kwargs"))
            systems.append(_module_system(with_inputs, patient=patient))
    if not any(isinstance(one, SpecSystem) for one in systems):
        refuse("a module", {"settings": settings})
    chosen = {name: read_option(name, options.get(name)) for name in ("dtype", "attention")}
    run = Run(mode=options.get("mode") or "forward", choices=devices, **chosen)
    kinds = [kind_of(one, run) for one in systems]
    for number, target in named.items():
        config = as_built(run, text=kinds[number - 1] is True, beside=kinds)
        stored = stored_forward(target, options, config)
        named_one = named_module(target, *texts[number], options.get("batch", 1), config, stored)
        systems[number - 1] = _module_system(named_one, patient=patient)
    return cast("list[System]", systems)


def open_one(command: str, given: Any, options: Mapping[str, Any], progress: Progress | None) -> System:
    """The system of a command that takes one.

    Raises:
        XfcostError: as `open_systems`; or a pattern matches several.
    """
    systems = open_systems([given], options, progress)
    if len(systems) != 1:
        raise UsageError(f"{command}: {shown(given)} stands for {len(systems)} systems; give one")
    return systems[0]


def at_batch(system: System, batch: int) -> System:
    """A spec as it is, which takes the batch of its run; another system with this one.

    Raises:
        UsageError: a module is given with inputs of its own batch.
    """
    if isinstance(system, SpecSystem):
        return system
    if isinstance(system, RecordedModel):
        return system.with_samples(batch)
    module = cast("ModuleSystem", system)
    return _module_system(module.module.with_samples(batch), patient=module.patient)


def check_mixing(systems: Sequence[System], options: Mapping[str, Any]) -> None:
    """Refuse to look for the mixing kinds where all systems are specs.

    Raises:
        UsageError: that is asked for.
    """
    if all(isinstance(one, SpecSystem) for one in systems):
        refuse("specs side by side", {name: options.get(name) for name in ("mixing", "mixing_limit")})


def shared_run(run: Run, systems: Sequence[System]) -> Run:
    """`run` with one dtype and one attention for all systems, where it has none."""
    return with_defaults(run, [kind_of(one, run) for one in systems])


def kind_of(one: System | ModuleTarget, run: Run) -> Spec | bool:
    """The spec of a system; of others: is it a language model?"""
    if isinstance(one, SpecSystem):
        return one.loaded.spec
    if isinstance(one, RecordedModel):
        return writes_text(str(config_of(one.key)), run.mode)
    target = one if isinstance(one, ModuleTarget) else getattr(cast("ModuleSystem", one).module, "target", None)
    return writes_text(target.place if target and target.kind == "config" else None, run.mode)


def text_positions(system: System, run: Run, most: int) -> int:
    """The positions of a language model, at most so many, of a spec to a power of two below; 0 of other systems."""
    if isinstance(system, RecordedModel):
        return min(system.counts.positions or most, most) if "decode" in system.counts.modes else 0
    if not isinstance(system, SpecSystem):
        return min(cast("ModuleSystem", system).module.positions or 0, most)
    while is_language_model(system.loaded.spec) and most:
        with suppress(XfcostError):
            place(system.loaded, run._replace(tokens=(most,)))
            return most
        most //= 2
    return 0


def _texts(given: Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _target(
    one: Any, options: Mapping[str, Any], progress: Progress | None, counted: bool
) -> ModuleTarget | SpecSystem | RecordedModel | None:
    """The module of a name; of a config.json its spec if there is one; None of specs."""
    target = module_target(one) if isinstance(one, str) else None
    if counted and (found := recorded_model(target, options)) is not None:
        return found[0]
    loaded = imported(target, options, progress) if target is not None and target.kind == "config" else None
    return target if loaded is None else SpecSystem(loaded)


def _module_system(module: AnyModule, *, patient: bool) -> ModuleSystem:
    from xfcost.torch_models.any_model.system import ModuleSystem

    return ModuleSystem(module, patient=patient)


def system_ledger(system: System, run: Run, how: AccountOptions) -> Ledger:
    """The ledger of one system at the size of the run, untimed where it is a module.

    Raises:
        XfcostError: it can't have that size, or an option is for specs only.
    """
    if isinstance(system, SpecSystem):
        return account(system.loaded, run, how)
    check_options(system.name, run, device=how.device, predict=how.predict, modes=_COUNTED_MODES)
    if isinstance(system, RecordedModel):
        return sized_on_devices(system.account(run, orders=how.orders), run, system.sizes, system.weights)
    module = cast("ModuleSystem", system)
    if how.mixing and run.mode != "decode" and module.module.stored is None:
        how.say(f"finding how the operations of {module.name} mix tokens …")
    with running(module):
        from xfcost.torch_models.any_model.system import lengths_of

        return module_on_devices(module.module, module.account(run, how_of(how, run)), lengths_of(run), run)


def system_ledgers(systems: Sequence[System], run: Run, how: AccountOptions) -> list[Ledger]:
    """The ledger of every system at the size of the run, as `system_ledger` gives it; all are timed in turns.

    Raises:
        XfcostError: as `system_ledger`.
    """
    loaded = [one.loaded for one in systems if isinstance(one, SpecSystem)]
    if len(loaded) == len(systems):
        return accounts(loaded, run, how)
    if how.device is None:
        return [system_ledger(one, run, how) for one in systems]
    for one in systems:
        if not isinstance(one, SpecSystem):
            check_options(one.name, run, predict=how.predict, modes=TIMED_MODES)
    return _timed_in_turns(systems, run, how.device, how)


def _timed_in_turns(systems: Sequence[System], run: Run, device: str, how: AccountOptions) -> list[Ledger]:
    """The ledgers of specs and modules, with seconds measured in turns.

    Raises:
        XfcostError: one can't be run so, or does not fit on the device.
    """
    with torch_there(" and ".join(one.name for one in systems), f"running them on {device}"):
        from xfcost.torch_models.timing.devices import check_device
        from xfcost.torch_models.timing.systems import SystemOnDevice, in_turns
        from xfcost.torch_models.timing.turns import REAL

        check_device(device)
        entrants: list[OnDevice] = []
        for one in systems:
            if isinstance(one, SpecSystem):
                ready = ready_to_time(one.loaded, run, device, how)
                if how.predict is not None:
                    ready = with_predicted_seconds(ready, predictors(how.predict, how.timing.threads))
                entrants.append(SystemOnDevice(ready, device, how.timing))
            else:
                entrants.append(cast("ModuleSystem", one).on_device(run, how_of(how, run)))
        return in_turns(entrants, device, how.timing, how.say, REAL)


def drawn_ledger(system: System, run: Run, *, strict: bool, mixing: bool, progress: Progress) -> Ledger:
    """The ledger of one system, with orders; of a module with its kinds, where it can be run on real numbers.

    Raises:
        XfcostError: it can't have that size, or an option is for specs only.
    """
    if not isinstance(system, SpecSystem):
        check_options(system.name, run)
    how = AccountOptions(strict=strict, mixing=mixing_limit(mixing), progress=progress)
    try:
        return system_ledger(system, run, how)
    except NoNumbersError as error:
        progress(f"{error}; its kinds are left out here")
        return system_ledger(system, run, AccountOptions(strict=strict))


def start(system: System, runs: Sequence[Run], *, mixing: bool, strict: bool, progress: Progress | None) -> None:
    """Count a module at the first of these runs that it can have; its other sizes are counted from there.

    Raises:
        XfcostError: it can have none of them; the error is that of the first.
    """
    if isinstance(system, SpecSystem | RecordedModel):
        return
    how = AccountOptions(orders=False, strict=strict, mixing=mixing_limit(mixing), progress=progress)
    failed: UsageError | None = None
    for run in runs:
        try:
            ledger = system_ledger(system, run, how)
        except NoNumbersError:
            raise
        except UsageError as error:
            failed = failed or error
            continue
        for note in ledger.metadata.notes:
            how.say(f"{system.name}: {note}")
        return
    if failed is not None:
        raise failed


def first_sizes(axis: SizeAxis, span: tuple[int, int], mark: int | None = None) -> list[int]:
    """Where a module is tried first: the mark, usual images, the middle on a log axis, its square, both ends."""
    low, high = span
    middle = math.isqrt(low * high)
    usual = _SIDES if axis is PIXELS else ()
    wanted = (*((mark,) if mark else ()), *usual, middle, math.isqrt(middle) ** 2, low, high)
    return [x for x in dict.fromkeys(wanted) if low <= x <= high]


def with_remarks(system: System, ledger: Ledger) -> Ledger:
    """The ledger with notes on how a module is counted at other sizes."""
    if isinstance(system, SpecSystem | RecordedModel):
        return ledger
    module = cast("ModuleSystem", system)
    with running(system):
        notes = tuple(module.remarks())
    return msgspec.structs.replace(
        ledger, metadata=msgspec.structs.replace(ledger.metadata, notes=(*notes, *ledger.metadata.notes))
    )


def running(system: System) -> AbstractContextManager[None]:
    """Inside it memory that runs out is a DeviceError."""
    from xfcost.torch_models.memory.shortage import memory_may_run_out

    return memory_may_run_out(system.name, "running it")


def check_options(
    name: str,
    run: Run,
    *,
    device: str | None = None,
    predict: str | None = None,
    modes: tuple[Mode, ...] = ("forward",),
) -> None:
    """Refuse what is for specs only, where it would make systems incomparable; `modes` are those that it may have.

    Raises:
        UsageError: such an option is given.
    """
    given = {
        "mode": None if run.mode in modes else run.mode,
        "device": device,
        "memory_level": run.memory_level,
        "predict": predict,
    }
    counted = "one forward or step of training" if "train" in modes else "one forward"
    refuse("a module among systems", given, name=printable(name, 80), counted=counted, trains=run.mode == "train")
