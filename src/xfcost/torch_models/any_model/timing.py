"""Seconds of any module on a device: of the whole, and of every operation by a clock around its kernel.

The module runs as it is counted: uncompiled, without torch's fast paths, in training mode if a step is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Timing
from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import OnCPU
from xfcost.torch_models.any_model.recorder import Recorder, recording
from xfcost.torch_models.any_model.run import Run, stand_ins
from xfcost.torch_models.any_model.stand_in import copied_inputs, copier, reached
from xfcost.torch_models.any_model.stepping import predicted_peak, steps_on
from xfcost.torch_models.any_model.user_errors import original, refused
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.memory.peak import check_room, peak_of_call
from xfcost.torch_models.timing.devices import Clock, check_device, waiting_clock
from xfcost.torch_models.timing.refusals import on_device
from xfcost.torch_models.timing.result import timing_of
from xfcost.torch_models.timing.subjects import UPDATE, peak_on_cuda
from xfcost.torch_models.timing.turns import REAL, Meters, Subject, take_turns
from xfcost.torch_models.tracing.meta import shapes_on_meta

Key = tuple[Any, ...]


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
    check_device(on.device)
    built, given = on.built()[0]
    model = original(built)
    predicted = _predicted(model, given, found, on.optimizer)
    what = "one forward" if on.optimizer is None else "a step of training"
    check_room(_needed(model, given, predicted, on), on.device, name, what)
    on.say(f"timing {name} on {on.device} …")
    clock = waiting_clock(on.device, on.meters.clock)
    try:
        with on_device(name, on.device, dtype), _ready(model, given, on, clock) as (subject, peak_of):
            measured = take_turns([subject], on.device, on.plan, on.meters)[0]
            peak = peak_of()
    except (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError) as error:
        raise refused(model, error, f" on {on.device}") from error
    seconds: dict[Any, float] = dict(measured.row_seconds())
    update = seconds.pop(UPDATE, None)
    _give_seconds(found.works, seconds)
    return Timed(timing_of(measured, on.device, peak, predicted, on.plan), update, tuple(_notes(built, model, on)))


def with_timing(ledger: Ledger, timed_: Timed) -> Ledger:
    """`ledger`, whose rows have their seconds, with those of the whole."""
    spent = {row.path: row.seconds * row.times for row in ledger.rows if row.seconds is not None}
    ledger = with_seconds(ledger, spent, {}, timed_.timing, timed_.update)
    for note in reversed(timed_.notes):
        ledger = ledger.with_note(note)
    return ledger


def _predicted(model: nn.Module, given: Given, found: Run, optimizer: str | None) -> int | None:
    """Peak bytes of live tensors in what is timed, on `meta`; None where the module does not run there."""
    if found.how != "meta":
        return None
    if optimizer is not None:
        return predicted_peak(model, given, optimizer)
    with stand_ins("meta", model, given.args, given.kwargs) as (args, kwargs), shapes_on_meta():
        return peak_of_call(lambda: model(*args, **kwargs), model, reached((args, kwargs)))


def _needed(model: nn.Module, given: Given, predicted: int | None, on: OnDevice) -> int:
    """Bytes that must be free: the peak, without the weights that are there already; a step of training copies them."""
    weights = [*model.parameters(), *model.buffers()]
    own = torch.empty(0, device=on.device).device
    there = sum(tensor.nbytes for tensor in weights if tensor.device == own and on.optimizer is None)
    least = sum(tensor.nbytes for tensor in (*weights, *reached((given.args, given.kwargs))))
    return max(least if predicted is None else predicted, least) - there


@contextmanager
def _ready(model: nn.Module, given: Given, on: OnDevice, clock: Clock) -> Iterator[tuple[Subject, Callable[[], int]]]:
    """What is timed, and what measures its peak bytes afterwards."""
    if on.optimizer is None:
        with _forwards(model, given, on.device) as call:
            subject = Subject({"": call}, lambda: _pass(model, call, clock))
            yield subject, lambda: _peak(call, model, given, on.device)
        return
    with steps_on(on.device, model, given, on.optimizer) as steps:
        cuda = on.device.startswith("cuda")
        peak = (lambda: peak_on_cuda(steps, on.device)) if cuda else steps.peak
        yield Subject({"": steps}, lambda: steps.by_operation(clock)), peak


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
    recorder = Recorder(clock)
    with recording(model, recorder):
        call()
    return recorder.seconds


def _peak(call: Callable[[], object], model: nn.Module, given: Given, device: str) -> int:
    """Peak bytes of one call: the device's own figure on CUDA, live tensors elsewhere."""
    if device.startswith("cuda"):
        return peak_on_cuda(call, device)
    return peak_of_call(call, model, reached((given.args, given.kwargs)))


def _give_seconds(works: list[Work], seconds: dict[Any, float]) -> None:
    """Give every operation its seconds; a device may run other kernels for the same call, and they are that call's."""
    by_key = {work.place: work for work in works}
    by_call: dict[Any, Work] = {}
    for work in works:
        by_call.setdefault(work.call, work)
    for key, spent in seconds.items():
        owner = by_key.get(key) or by_call.get((key[0], *key[2:]))
        if owner is not None:
            owner.seconds = (owner.seconds or 0.0) + spent


def _notes(built: nn.Module, model: nn.Module, on: OnDevice) -> Iterator[str]:
    if built is not model or any(vars(module).get("_compiled_call_impl") for module in model.modules()):
        yield "timed uncompiled, as it is counted"
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        yield "timed with random weights: its own are on `meta`, and have no numbers (buffers of whole numbers are 0)"
    fast = nn.TransformerEncoderLayer | nn.MultiheadAttention
    if on.optimizer is None and any(isinstance(one, fast) and not one.training for one in model.modules()):
        yield "timed as counted, without the fast path that torch takes for its own encoder layers in evaluation mode"
