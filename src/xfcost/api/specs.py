"""The ledger of a spec: counted, traced, timed, probed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from xfcost.api.options import Progress
from xfcost.counting.decoding import check_generation, run_at, traced_steps, with_mode, with_traced_steps
from xfcost.counting.forward import count, with_rebuilt_note
from xfcost.counting.training import with_training
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_plan import USUAL, TimingPlan
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run, with_defaults

if TYPE_CHECKING:
    from xfcost.torch_models.build import BuiltModel
    from xfcost.torch_models.predicting.predict import Predictor
    from xfcost.torch_models.timing.systems import System


class AccountOptions(NamedTuple):
    """Which accounts of a system are taken, and how."""

    trace: bool = False
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
    """The seconds in which the mixing kinds of a module are found."""

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
        with _torch(loaded[0], f"running it on {device}"):
            from xfcost.torch_models.timing.devices import check_device

            check_device(str(device))
    placed = [(one, *_counted_and_traced(one, run, how)) for one in loaded]
    if how.predict is not None:
        with _torch(loaded[0], "predicting it"):
            from xfcost.api.predictions import predictors

            by_dtype = predictors(how.predict, how.timing.threads)
            placed = [
                (one, architecture, foreseen(_system(one, architecture, ledger, run, how.predict), by_dtype).ledger)
                for one, architecture, ledger in placed
            ]
    if device is None:
        return [ledger for _, _, ledger in placed]
    names = " and ".join(one.spec.name for one in loaded)
    with _torch(loaded[0], f"running {names} on {device}" if len(loaded) > 1 else f"running it on {device}"):
        from xfcost.torch_models.timing.systems import timed_in_turns

        systems = [_system(*one, run, str(device)) for one in placed]
        return timed_in_turns(systems, str(device), how.timing, how.say)


def ready_to_time(loaded: Loaded, run: Run, device: str, how: AccountOptions) -> System:
    """One loaded spec, counted, to be timed on `device`.

    Raises:
        XfcostError: as `account`.
    """
    return _system(loaded, *_counted_and_traced(loaded, run, how), run, device)


def foreseen(system: System, by_dtype: Callable[[str], Predictor]) -> System:
    """The same, its ledger with the seconds that the device's calibration predicts.

    Raises:
        UsageError: it is not calibrated, or the mode is not predicted.
    """
    from xfcost.torch_models.predicting.predict import predicted

    return system._replace(ledger=predicted(system, by_dtype(system.architecture.dtype)))


def _counted_and_traced(loaded: Loaded, run: Run, how: AccountOptions) -> tuple[Architecture, Ledger]:
    """The architecture of one spec, and its ledger without times."""
    with _torch(loaded, "tracing it") if how.trace else nullcontext():
        architecture = place(loaded, run)
        check_generation(loaded, run, architecture)
        given = (loaded, run, architecture)
        ledger = with_rebuilt_note(count(architecture, orders=how.orders), loaded, architecture)
        if run.plan is not None:
            ledger = _planned(with_training(ledger, architecture, run.plan), run, architecture)
        ledger = _traced(ledger, *given, how.say) if how.trace else with_mode(ledger, *given)
        if how.trace:  # it knows the activations of every model
            ledger = _planned(ledger, run, architecture)
        return architecture, _on_devices(ledger, *given)


def _planned(ledger: Ledger, run: Run, architecture: Architecture) -> Ledger:
    """`ledger` of a training step with its plan on the devices of `--on`, where they are given."""
    if run.plan is None or run.plan.mesh is None:
        return ledger
    from xfcost.counting.distributed import with_training_plan

    return with_training_plan(ledger, architecture, run.plan)


def _on_devices(ledger: Ledger, loaded: Loaded, run: Run, architecture: Architecture) -> Ledger:
    """`ledger` with its bounds on the devices of `--on`, where they are given."""
    if run.on is None:
        return ledger
    from xfcost.counting.on_devices import with_devices

    return with_devices(ledger, loaded, run, architecture)


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


def _system(loaded: Loaded, architecture: Architecture, ledger: Ledger, run: Run, device: str) -> System:
    """What its mode runs, to be timed.

    Raises:
        UsageError: the generation has no decode steps.
    """
    from xfcost.torch_models.timing.systems import System

    generation = ledger.generation
    if generation is None:
        return System(architecture, ledger)
    if generation.decode is None:
        raise UsageError(f"--device {device}: there are no steps to time: {generation.refused}")
    final = max(generation.prompt + generation.new_tokens - 1, generation.prompt)
    return System(architecture, ledger, place(loaded, run_at(final, architecture, run, "decode")))


def with_probe(
    loaded: Loaded, run: Run, ledger: Ledger, say: Progress, *, detailed: bool = True, seconds: float = inf
) -> Ledger:
    """`ledger` with how the running model mixes tokens: `detailed`, or a check of kinds within `seconds`."""
    from xfcost.torch_models.shared.environment import collector_paused

    with _torch(loaded, "probing it"), collector_paused():
        from xfcost.torch_models.probing.account import probed

        return probed(place(loaded, run), ledger, say, detailed=detailed, seconds=seconds)


def built(loaded: Loaded, run: Run, device: str) -> BuiltModel:
    """The torch model of one loaded spec on `device`, with example inputs.

    Raises:
        XfcostError: bad input; a NoRoomError where the weights don't fit.
    """
    with _torch(loaded, "building it"):
        from xfcost.torch_models.build import build
        from xfcost.torch_models.memory.peak import check_room
        from xfcost.torch_models.timing.devices import check_device

        architecture = place(loaded, run)
        if device != "meta":
            check_device(device)
            weights = (count(architecture, orders=False).total("params") or 0) * BYTES_PER_ELEMENT[architecture.dtype]
            check_room(weights, device, loaded.spec.name, "the weights alone")
        return build(architecture, device)


def _torch(loaded: Loaded, doing: str) -> AbstractContextManager[None]:
    """Inside it torch is there, and memory that runs out is a DeviceError with bytes."""
    from xfcost.torch_models.memory.shortage import check_torch_loads, memory_may_run_out

    check_torch_loads()
    return memory_may_run_out(loaded.spec.name, doing)


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
