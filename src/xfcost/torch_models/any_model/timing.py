"""Seconds of any module on a device: of the whole, and of every operation by a clock around its kernel.

The module runs as it is counted: uncompiled, without torch's fast paths, in training mode if a step is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Timing
from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import OnCPU
from xfcost.torch_models.any_model.operations import Operations
from xfcost.torch_models.any_model.run import Run, TensorKind, copied_inputs, copier, learned_from, reached, stand_ins
from xfcost.torch_models.any_model.user_errors import original, refused
from xfcost.torch_models.any_model.work import Key, Work, owners
from xfcost.torch_models.memory.peak import bytes_to_run, check_room, on_cpu, peak_of_call
from xfcost.torch_models.memory.training_step import optimizer
from xfcost.torch_models.running.recorder import Recorder, differentiate
from xfcost.torch_models.shared.private_torch import is_compiled_in_place, pytree
from xfcost.torch_models.timing.devices import Clock, check_device, waiting_clock
from xfcost.torch_models.timing.refusals import on_device
from xfcost.torch_models.timing.subjects import UPDATE, Ready, peak_on_cuda
from xfcost.torch_models.timing.turns import REAL, Measured, Meters, Subject, take_turns, timing_of
from xfcost.torch_models.tracing.meta import shapes_on_meta

# What a module may raise because of its own code.
OWN_ERRORS: Final = (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError)
# What to do about a module that does not fit.
SMALLER: Final = "take smaller inputs, or leave --device out: counting needs no memory"


class Taken(NamedTuple):
    """What was measured of a module on a device, before its rows are made."""

    measured: Measured
    peak: int | None
    """Bytes of live tensors."""
    predicted: int | None
    """The same on `meta`."""


class OnDevice(NamedTuple):
    """Where and how a module is timed."""

    device: str
    built: OnCPU
    """Gives the module with its inputs."""
    say: Callable[[str], None]
    plan: TimingPlan = USUAL
    meters: Meters = REAL
    optimizer: str | None = None
    """Of a step of training; None: a forward is timed."""
    taken: Taken | None = None
    """What was measured already, in turns with other systems."""


class Timed(NamedTuple):
    """What was measured."""

    timing: Timing
    update: float | None
    """Seconds of the optimizer, in a step of training."""
    notes: tuple[str, ...]


def timed(found: Run, name: str, dtype: str, on: OnDevice) -> Timed:
    """Time the module on `on.device`; `found`'s operations get their seconds.

    Raises:
        DeviceError: there is no such device, or the module does not fit.
        UsageError: the module does not run there.
    """
    built, given = on.built()[0]
    model = original(built)
    taken = on.taken or _taken(model, given, predicted(model, given, found.how, on.optimizer), name, dtype, on)
    seconds: dict[Any, float] = dict(taken.measured.row_seconds())
    update = seconds.pop(UPDATE, None)
    _give_seconds(found.works, seconds)
    timing = timing_of(taken.measured, on.device, taken.peak, taken.predicted, on.plan)
    return Timed(timing, update, tuple(_notes(built, model, on)))


def _taken(model: nn.Module, given: Given, held: int | None, name: str, dtype: str, on: OnDevice) -> Taken:
    """The module timed alone; `held` is the predicted peak."""
    check_device(on.device)
    check_plan(on.plan, name)
    least = needed(model, given, held, on.device, on.optimizer)
    check_room(least, on.device, name, what_runs(on.optimizer), SMALLER)
    on.say(f"timing {name} on {on.device} …")
    clock = waiting_clock(on.device, on.meters.clock)
    with (
        told_as_its_own(model, on.device),
        on_device(name, on.device, dtype),
        ready_on(on.device, model, given, on.optimizer, clock) as ready,
    ):
        measured = take_turns([ready.subject], on.device, on.plan, on.meters)[0]
        return Taken(measured, ready.peak(), held)


@contextmanager
def told_as_its_own(model: nn.Module, device: str) -> Iterator[None]:
    """What the module's own code raises on the device is an error with the line of that code.

    Raises:
        UsageError: the module does not run there.
    """
    try:
        yield
    except OWN_ERRORS as error:
        raise refused(model, error, f" on {device}") from error


def check_plan(plan: TimingPlan, name: str) -> None:
    """Refuse ways to run that are of specs alone.

    Raises:
        UsageError: the plan has one.
    """
    for option, given in (("--compile", plan.compile), ("--composed", plan.composed)):
        if given:
            raise UsageError(f"{option}: {name} is a torch module, which is timed as it is counted; leave it out")


def what_runs(optimizer: str | None) -> str:
    """What is timed, in words."""
    return "one forward" if optimizer is None else "a step of training"


def with_timing(ledger: Ledger, timed_: Timed) -> Ledger:
    """`ledger`, whose rows have their seconds, with those of the whole."""
    spent = {row.path: row.seconds * row.times for row in ledger.rows if row.seconds is not None}
    ledger = with_seconds(ledger, spent, None, timed_.timing, timed_.update)
    for note in reversed(timed_.notes):
        ledger = ledger.with_note(note)
    return ledger


def predicted(model: nn.Module, given: Given, how: TensorKind, optimizer: str | None) -> int | None:
    """Peak bytes of live tensors in what is timed, on `meta`; None where the module does not run there."""
    if how != "meta":
        return None
    if optimizer is not None:
        return predicted_peak(model, given, optimizer)
    with stand_ins("meta", model, given.args, given.kwargs) as (args, kwargs), shapes_on_meta():
        return peak_of_call(lambda: model(*args, **kwargs), model, reached((args, kwargs)))


def needed(model: nn.Module, given: Given, held: int | None, device: str, optimizer: str | None) -> int:
    """Bytes that must be free, without those of weights that are there already; a step of training copies them."""
    weights = [*model.parameters(), *model.buffers()]
    own = torch.empty(0, device=device).device
    there = sum(tensor.nbytes for tensor in weights if tensor.device == own and optimizer is None)
    least = sum(tensor.nbytes for tensor in (*weights, *reached((given.args, given.kwargs))))
    return bytes_to_run(max(least if held is None else held, least) - there, device)


@contextmanager
def ready_on(device: str, model: nn.Module, given: Given, optimizer: str | None, clock: Clock) -> Iterator[Ready]:
    """What is timed on the device, and what measures its peak bytes afterwards."""
    if optimizer is None:
        with _forwards(model, given, device) as call:
            subject = Subject({"": call}, lambda: _pass(model, call, clock))
            yield Ready(subject, lambda: _peak(call, model, given, device))
        return
    with steps_on(device, model, given, optimizer) as steps:
        peak = (lambda: peak_on_cuda(steps, device)) if device.startswith("cuda") else steps.peak
        yield Ready(Subject({"": steps}, lambda: steps.by_operation(clock)), peak)


@contextmanager
def _forwards(model: nn.Module, given: Given, device: str) -> Iterator[Callable[[], object]]:
    """A call of the module on the device; its state of one call, such as a cache among its inputs, is copied."""
    with stand_ins("real", model, given.args, given.kwargs, device=device) as (args, kwargs):
        leaves = pytree.tree_leaves((args, kwargs))
        has_state = any(hasattr(leaf, "__dict__") and not isinstance(leaf, Tensor | type) for leaf in leaves)
        made = copier("real")

        def call() -> object:
            own_args, own_kwargs = copied_inputs((args, kwargs), made) if has_state else (args, kwargs)
            with torch.no_grad():
                return model(*own_args, **own_kwargs)

        yield call


def _pass(model: nn.Module, call: Callable[[], object], clock: Clock) -> dict[Any, float]:
    """Seconds of every operation in one call."""
    recorder = Recorder(clock=clock)
    with recorder.of(model):
        call()
    return dict(Operations(recorder.run).seconds)


def _peak(call: Callable[[], object], model: nn.Module, given: Given, device: str) -> int:
    """Peak bytes of one call: the device's own figure on CUDA, live tensors elsewhere."""
    if device.startswith("cuda"):
        return peak_on_cuda(call, device)
    return peak_of_call(call, model, reached((given.args, given.kwargs)))


def _give_seconds(works: list[Work], seconds: dict[Key, float]) -> None:
    """Give every operation its seconds."""
    owner = owners(works)
    for key, spent in seconds.items():
        if (work := owner(key)) is not None:
            work.seconds = (work.seconds or 0.0) + spent


def _notes(built: nn.Module, model: nn.Module, on: OnDevice) -> Iterator[str]:
    if built is not model or any(map(is_compiled_in_place, model.modules())):
        yield "timed uncompiled, as it is counted"
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        yield "timed with random weights: its own are on `meta`, and have no numbers (buffers of whole numbers are 0)"
    fast = nn.TransformerEncoderLayer | nn.MultiheadAttention
    if on.optimizer is None and any(isinstance(one, fast) and not one.training for one in model.modules()):
        yield "timed as counted, without the fast path that torch takes for its own encoder layers in evaluation mode"


class ModuleSteps:
    """Steps of `model` on one repeated batch; the loss is the model's own, else the sum of what it returns."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, device: str) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.name, self.lists = name, not on_cpu(device)
        self.optimizer = optimizer(name, model, lists=self.lists)

    def __call__(self) -> None:
        """Forward, backward, update."""
        differentiate(learned_from(self.model(*self.args, **self.kwargs)))
        self._update()

    def _update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def by_operation(self, clock: Clock) -> dict[Any, float]:
        """Seconds of every operation, its backward pass with it, in one step; and of the update."""
        recorder = Recorder(clock=clock)
        with recorder.of(self.model):
            recorder.differentiate(learned_from(self.model(*self.args, **self.kwargs)))
        began = clock()
        self._update()
        update = clock() - began
        return Operations(recorder.run).seconds | {UPDATE: update}

    def peak(self) -> int:
        """Peak bytes of live tensors in two steps, the second with optimizer states. Works on `meta` too."""
        self.optimizer = optimizer(self.name, self.model, lists=self.lists)
        recorder = Recorder(self.model, reached((self.args, self.kwargs)), calls=False, numbers_on_meta=True)
        with recorder.of(self.model):
            self()
            self()
        return recorder.run.peak_bytes()


@contextmanager
def steps_on(device: str, model: nn.Module, given: Given, name: str) -> Iterator[ModuleSteps]:
    """Steps with the optimizer `name` on copies of the parameters there."""
    how: TensorKind = "meta" if device == "meta" else "real"
    there = None if device == "meta" else device
    placed = stand_ins(how, model, given.args, given.kwargs, training=True, device=there)
    with placed as (args, kwargs), torch.enable_grad():
        yield ModuleSteps(model, args, kwargs, name, device)


def predicted_peak(model: nn.Module, given: Given, name: str) -> int:
    """The same on `meta`, where nothing is allocated."""
    with steps_on("meta", model, given, name) as steps, shapes_on_meta():
        return steps.peak()
