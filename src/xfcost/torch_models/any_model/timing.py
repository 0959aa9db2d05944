"""Any module on a device: seconds of the whole, and of every operation by a clock around its kernel.

The module runs as it is counted: uncompiled, without torch's fast paths, in training mode if a step is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_plan import USUAL, TimingPlan
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import Built
from xfcost.torch_models.any_model.run import TensorKind, copied_inputs, copier, learned_from, reached, stand_ins
from xfcost.torch_models.any_model.user_errors import original, refused
from xfcost.torch_models.any_model.work import Operations, Work, owners
from xfcost.torch_models.memory.peak import bytes_to_run, on_cpu, peak_of_call, peak_on
from xfcost.torch_models.memory.training_step import Stepping, optimizer
from xfcost.torch_models.running.recorder import Recorder, differentiate
from xfcost.torch_models.running.surroundings import shapes_on_meta
from xfcost.torch_models.shared.private_torch import is_compiled_in_place, pytree
from xfcost.torch_models.timing.devices import Clock, on_device, waiting_clock
from xfcost.torch_models.timing.systems import UPDATE
from xfcost.torch_models.timing.turns import REAL, Measured, Meters, Subject, timing_of

# What a module may raise because of its own code.
_OWN_ERRORS: Final = (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError, NotImplementedError)


class Taken(NamedTuple):
    """What was measured of a module on a device, before its rows are made."""

    measured: Measured
    peak: int | None
    """Bytes of live tensors."""
    predicted: int | None
    """The same on `meta`."""


class ModuleOnDevice:
    """A forward of a module, or a step of its training, as it is timed on a device.

    Args:
        name: what its ledger calls it.
        dtype: its ledger's.
        tensors: those on which it was counted; its memory is predicted on `meta` where they were there.
        optimizer: of a step of training; None: a forward.
        device: where it runs.
        built: gives the module with its inputs, to be run there.
        counted: gives the same to predict its memory, where that is another one.
        plan: how it is timed; of specs alone are --compile and --composed.
        meters: read the time and the system.
        ledger: makes its ledger of what was measured.
    """

    mend = "take smaller inputs, or leave --device out: counting needs no memory"

    def __init__(  # noqa: PLR0913 - options
        self, name: str, dtype: str, tensors: TensorKind, optimizer: str | None, device: str,
        built: Callable[[], AbstractContextManager[Built]], *,
        counted: Callable[[], AbstractContextManager[Built]] | None = None, plan: TimingPlan = USUAL,
        meters: Meters = REAL, ledger: Callable[[Taken], Ledger] | None = None,
    ) -> None:  # fmt: skip
        check_plan(plan, name)
        self.name, self.dtype, self.device, self.meters = name, dtype, device, meters
        self.what = "one forward" if optimizer is None else "a step of training"
        self._built, self._optimizer, self._ledger = built, optimizer, ledger
        with (counted or built)() as (module, given):
            model = original(module)
            self.predicted = _predicted(model, given, optimizer) if tensors == "meta" else None
            self.needed = self._free_bytes(model, given)

    def _free_bytes(self, model: nn.Module, given: Given) -> int:
        """Those that must be free, without weights that are there already; a step of training copies them."""
        weights = [*model.parameters(), *model.buffers()]
        own = torch.empty(0, device=self.device).device
        there = sum(tensor.nbytes for tensor in weights if tensor.device == own and self._optimizer is None)
        least = sum(tensor.nbytes for tensor in (*weights, *reached((given.args, given.kwargs))))
        return bytes_to_run(max(self.predicted or 0, least) - there, self.device)

    @contextmanager
    def ready(self) -> Iterator[Subject]:
        """It is on the device; what its own code raises there is its error, whoever else takes turns."""
        device, clock = self.device, waiting_clock(self.device, self.meters.clock)
        with self._built() as (module, given):
            model = original(module)

            def own(call: Callable[[], Any]) -> Callable[[], Any]:
                def told() -> Any:
                    try:
                        with on_device(self.name, device, self.dtype):
                            return call()
                    except _OWN_ERRORS as error:
                        raise refused(model, error, f" on {device}") from error

                return told

            if self._optimizer is None:
                with _forwards(model, given, device) as call:
                    rows = own(partial(_seconds, model, call, clock))
                    peak = partial(peak_on, device, call, model, reached((given.args, given.kwargs)))
                    yield Subject({"": own(call)}, rows, peak)
                return
            with _steps_on(device, model, given, self._optimizer) as steps:
                yield Subject({"": own(steps)}, own(partial(steps.by_operation, clock)), partial(steps.peak, device))

    def ledger(self, measured: Measured, peak: int | None) -> Ledger:
        if self._ledger is None:
            raise TypeError(f"{self.name} is timed without a ledger")
        return self._ledger(Taken(measured, peak, self.predicted))


def check_plan(plan: TimingPlan, name: str) -> None:
    """Refuse ways to run that are of specs alone."""
    for option, given in (("--compile", plan.compile), ("--composed", plan.composed)):
        if given:
            raise UsageError(f"{option}: {name} is a torch module, which is timed as it is counted; leave it out")


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


def _seconds(model: nn.Module, call: Callable[[], object], clock: Clock) -> dict[Any, float]:
    """Of every operation in one call."""
    recorder = Recorder(clock=clock)
    with recorder.of(model):
        call()
    return Operations(recorder.run).seconds


class _ModuleSteps(Stepping):
    """Steps of any module; the loss is its own, else the sum of what it returns."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, device: str) -> None:
        self.model, self.inputs = model, tuple(reached((args, kwargs)))
        self.call = partial(model, *args, **kwargs)
        self._optimizer = partial(optimizer, name, model, lists=not on_cpu(device))
        self.optimizer = self._optimizer()

    def forward(self) -> Any:
        return learned_from(self.call())

    def backward(self, loss: Any) -> None:
        differentiate(loss)

    def by_operation(self, clock: Clock) -> dict[Any, float]:
        """Seconds of every operation, its backward pass with it, in one step; and of the update."""
        recorder = Recorder(clock=clock)
        with recorder.of(self.model):
            recorder.differentiate(self.forward())
        began = clock()
        self.update()
        return Operations(recorder.run).seconds | {UPDATE: clock() - began}


@contextmanager
def _steps_on(device: str, model: nn.Module, given: Given, name: str) -> Iterator[_ModuleSteps]:
    """Steps with the optimizer `name` on copies of the parameters there."""
    how: TensorKind = "meta" if device == "meta" else "real"
    with stand_ins(how, model, *given, training=True, device=device if how == "real" else None) as (args, kwargs):
        yield _ModuleSteps(model, args, kwargs, name, device)


def _predicted(model: nn.Module, given: Given, optimizer: str | None) -> int:
    """Peak bytes of live tensors in what is timed, on `meta`."""
    if optimizer is not None:
        with _steps_on("meta", model, given, optimizer) as steps, shapes_on_meta():
            return steps.peak()
    with stand_ins("meta", model, *given) as (args, kwargs), shapes_on_meta():
        return peak_of_call(lambda: model(*args, **kwargs), model, reached((args, kwargs)))


def give_seconds(works: list[Work], measured: Measured) -> float | None:
    """Give every operation its seconds; those of the optimizer in a step of training."""
    seconds: dict[Any, float] = dict(measured.row_seconds())
    update, owner = seconds.pop(UPDATE, None), owners(works)
    for key, spent in seconds.items():
        if (work := owner(key)) is not None:
            work.seconds = (work.seconds or 0.0) + spent
    return update


def with_timing(ledger: Ledger, taken: Taken, update: float | None, device: str, plan: TimingPlan) -> Ledger:
    """`ledger`, whose rows have their seconds, with those of the whole."""
    spent = {row.path: row.seconds * row.times for row in ledger.rows if row.seconds is not None}
    timing = timing_of(taken.measured, device, taken.peak, taken.predicted, plan)
    return with_seconds(ledger, spent, None, timing, update)


def notes_of(module: nn.Module, *, training: bool) -> Iterator[str]:
    """How the run that was timed differs from the module's own."""
    model = original(module)
    if module is not model or any(map(is_compiled_in_place, model.modules())):
        yield "timed uncompiled, as it is counted"
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        yield "timed with random weights: its own are on `meta`, and have no numbers (buffers of whole numbers are 0)"
    fast = nn.TransformerEncoderLayer | nn.MultiheadAttention
    if not training and any(isinstance(one, fast) and not one.training for one in model.modules()):
        yield "timed as counted, without the fast path that torch takes for its own encoder layers in evaluation mode"
