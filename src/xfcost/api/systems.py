"""The systems of a comparison, a plot or a drawing: specs, and torch modules given or named."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from xfcost.api.modules import (
    check_predicted_mode,
    given_module,
    imported,
    is_module,
    mixing_seconds,
    named_module,
)
from xfcost.api.predictions import predictors
from xfcost.api.specs import Progress, account, accounts, settings_texts, spec_name
from xfcost.api.timed_together import Asked, timed_together
from xfcost.counting.sweep import PIXELS, SizeAxis
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import NoNumbersError, UsageError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.spec.default_options import with_defaults
from xfcost.spec.input_shapes import ModuleTexts, texts_by_place
from xfcost.spec.load import expanded, load
from xfcost.spec.run import Run
from xfcost.spec.targets import ModuleTarget, module_target

if TYPE_CHECKING:
    from xfcost.torch_models.any_model.system import ModuleSystem

_PAIR: Final = 2
# Sizes of the image at which a module is counted first, where they are in the range.
_SIDES: Final = (512, 448, 224, 256)


class OfModules(NamedTuple):
    """What the modules among some systems are given."""

    inputs: Sequence[str] | None = ()
    """Texts, as after `--input`."""
    build: Sequence[str] | None = ()
    """Texts, as after `--build`."""
    example_inputs: Any = None
    """Of modules that are given without inputs of their own."""
    example_kwargs: Mapping[str, Any] | None = None
    batch: Any = 1
    """The number for B."""
    patient: bool = False
    """Count modules at every size of a search, however long that takes."""


def open_systems(
    given: Sequence[Any], of: OfModules, settings: Sequence[str] | None, progress: Progress | None = None
) -> list[System]:
    """The systems that a user gives: names of presets, paths, targets and patterns, modules, (module, inputs) pairs.

    Raises:
        XfcostError: a spec can't be read; inputs are of no module.
    """
    entries = [one if _is_pair(one) or is_module(one) else spec_name(one) for one in given]
    targets = {place: target for place, one in enumerate(entries, 1) if (target := _target(one, settings, progress))}
    named = {place: target for place, target in targets.items() if isinstance(target, ModuleTarget)}
    modules = {place: target.text for place, target in named.items()}
    texts = texts_by_place(ModuleTexts(_texts(of.inputs), _texts(of.build)), modules, len(entries))
    if of.example_inputs is not None and all(isinstance(one, str | tuple) for one in entries):
        raise UsageError("example_inputs: they are of a torch module; a spec knows its inputs (--N, --size, --batch)")
    systems: list[System] = []
    before: list[str] = []
    for place, one in enumerate(entries, 1):
        if place in named:
            systems.append(_module(named_module(named[place], *texts[place], of.batch), of))
        elif isinstance(spec := targets.get(place), SpecSystem):
            systems.append(spec)
        elif isinstance(one, str):
            names = expanded([*before, one])[len(before) :]  # a pattern gives no preset twice
            systems += [SpecSystem(load(name, settings_texts(settings))) for name in names]
            before += names
        else:
            module, inputs = one if isinstance(one, tuple) else (one, of.example_inputs)
            systems.append(_module(given_module(module, inputs, of.example_kwargs), of))
    return systems


def shared_run(run: Run, systems: Sequence[System]) -> Run:
    """`run` with one dtype and one attention for all systems, where it has none."""
    return with_defaults(run, [one.loaded.spec if isinstance(one, SpecSystem) else None for one in systems])


def _texts(given: Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _is_pair(one: Any) -> bool:
    return isinstance(one, tuple) and len(one) == _PAIR and is_module(one[0])


def _target(one: Any, settings: Sequence[str] | None, progress: Progress | None) -> ModuleTarget | SpecSystem | None:
    """The module that a name stands for; of a config.json its spec, where there is one; None of specs."""
    target = module_target(one) if isinstance(one, str) else None
    loaded = imported(target, settings, progress) if target is not None and target.kind == "config" else None
    return target if loaded is None else SpecSystem(loaded)


def _module(module: Any, of: OfModules) -> ModuleSystem:
    from xfcost.torch_models.any_model.system import ModuleSystem

    return ModuleSystem(module, patient=of.patient)


def system_ledger(  # noqa: PLR0913 - options
    system: System, run: Run, *, trace: bool = False, device: str | None = None, progress: Progress | None = None,
    predict: str | None = None, timing: TimingPlan = USUAL, orders: bool = True, strict: bool = False,
    mixing: float = 0,
) -> Ledger:  # fmt: skip
    """The ledger of one system at the size of the run.

    Raises:
        XfcostError: it can't have that size, or an option is of specs alone.
    """
    if isinstance(system, SpecSystem):
        how: dict[str, Any] = {"trace": trace, "device": device, "predict": predict, "timing": timing}
        how |= {"progress": progress}
        return account(system.loaded, run, orders=orders, **how)
    module = cast("ModuleSystem", system)
    check_options(module.name, run, device, predict=predict is not None, trained=True)
    foresee = None if predict is None else predictors(predict, timing.threads)
    if mixing and progress is not None:
        progress(f"finding how the operations of {module.name} mix tokens …")
    with running(module):
        from xfcost.torch_models.any_model.ledger import How

        closed_form = None if orders else False
        return module.account(run, How(trace, strict, closed_form, mixing, run.plan, predict=foresee))


def system_ledgers(
    systems: Sequence[System], run: Run, *, strict: bool = False, mixing: float = 0, **how: Any
) -> list[Ledger]:
    """The ledger of every system at the size of the run, as `system_ledger` gives it; all are timed in turns.

    Raises:
        XfcostError: as `system_ledger`.
    """
    loaded = [one.loaded for one in systems if isinstance(one, SpecSystem)]
    if len(loaded) == len(systems):
        return accounts(loaded, run, **how)
    if how.get("device") is not None:
        for one in systems:
            if not isinstance(one, SpecSystem):
                check_options(one.name, run, None, predict=how.get("predict") is not None, trained=True)
        return timed_together(systems, run, Asked(strict=strict, mixing=mixing, **how))
    return [system_ledger(one, run, strict=strict, mixing=mixing, **how) for one in systems]


def drawn_ledger(system: System, run: Run, *, strict: bool, mixing: bool, progress: Progress) -> Ledger:
    """The ledger of one system, with orders; of a module with its kinds, where it can be run on real numbers.

    Raises:
        XfcostError: it can't have that size, or an option is of specs alone.
    """
    if not isinstance(system, SpecSystem):
        check_options(system.name, run, None, predict=False)
    try:
        return system_ledger(system, run, strict=strict, mixing=mixing_seconds(mixing, None), progress=progress)
    except NoNumbersError as error:
        progress(f"{error}; its kinds are left out here")
        return system_ledger(system, run, strict=strict)


def start(system: System, runs: Sequence[Run], *, mixing: bool, strict: bool, progress: Progress | None) -> None:
    """Count a module at the first of these runs that it can have; its other sizes are counted from there.

    Raises:
        XfcostError: it can have none of them; the error is that of the first.
    """
    if isinstance(system, SpecSystem):
        return
    failed: UsageError | None = None
    for run in runs:
        try:
            ledger = system_ledger(
                system, run, orders=False, strict=strict, mixing=mixing_seconds(mixing, None), progress=progress
            )
        except NoNumbersError:
            raise
        except UsageError as error:
            failed = failed or error
            continue
        if progress is not None:
            for note in ledger.metadata.notes:
                progress(f"{system.name}: {note}")
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
    if isinstance(system, SpecSystem):
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


def check_options(name: str, run: Run, device: str | None, *, predict: bool, trained: bool = False) -> None:
    """Refuse what is of specs alone, where it would make systems incomparable; a step may be `trained`.

    Raises:
        UsageError: such an option is given.
    """
    counted = ("forward", "train") if trained else ("forward",)
    of_specs = {"--mode": run.mode if run.mode not in counted else None, "--device": device}
    of_specs["--memory-level"] = None if run.memory_level is None else str(run.memory_level)
    of_specs["--tokens"] = None if run.plan is None or run.plan.tokens is None else str(run.plan.tokens)
    for option, value in of_specs.items():
        if value is not None:
            what = "one forward or step of training" if trained else "one forward"
            raise UsageError(
                f"{f'{option} {value}'.rstrip()}: {printable(name, 80)} is a torch module, of which {what} is counted; "
                f"give specs alone, or leave {option} out"
            )
    if predict:
        check_predicted_mode(run.mode)
