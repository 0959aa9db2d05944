"""The ATen calls of a forward and of a training step: how often each runs for which module or row, and how long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.running.by_row import leaf_rows, row_path
from xfcost.torch_models.running.prediction_calls import LayoutCall, calls_by_place, every_layout
from xfcost.torch_models.running.record import Call, Run
from xfcost.torch_models.running.recorder import Clock, Recorder
from xfcost.torch_models.shared.private_torch import disable_current_modes
from xfcost.torch_models.timing.systems import UPDATE

OUTSIDE: Final = ""
"""Stands for the row of what runs outside all rows."""
Before = Callable[[], object] | None


class Recorded(NamedTuple):
    """The calls of a run."""

    calls: dict[tuple[str, LayoutCall], int]
    """(module path, or row; call) -> how often it ran."""
    views: Counter[str]
    """Module path -> calls that only make another view of a tensor."""
    modules: Counter[str]
    """Module path -> how often it was called."""
    seconds: dict[LayoutCall, list[float]]
    """Of a run with a clock."""


def recorded(
    model: nn.Module, inputs: tuple[Any, ...], clock: Clock | None = None, times: int = 1, before: Before = None
) -> Recorded:
    """The calls of `model(*inputs)`.

    With a `clock` its real tensors are run `times` times more, and every call is timed. `before` is called before each
    run, and is not recorded.
    """
    recorder = Recorder(clock=clock, for_prediction=True, numbers_on_meta=True)
    with recorder.of(model), torch.no_grad():
        _repeated(recorder, lambda: model(*inputs), times, before)
    return _recorded(recorder.run, lambda call: call.module, recorder.run.modules)


def _repeated(recorder: Recorder, run: Callable[[], object], times: int, before: Before) -> None:
    for _ in range(1 if recorder.clock is None else times + 1):
        if before is not None:
            with disable_current_modes():
                before()
        run()
        if recorder.clock is not None:
            recorder.repeat()


def _recorded(run: Run, place_of: Callable[[Call], str], modules: Mapping[str, int]) -> Recorded:
    """The calls of a run, with the seconds of all that were timed."""
    calls, views = calls_by_place(run, place_of)
    seconds: dict[LayoutCall, list[float]] = defaultdict(list)
    if run.repeats:
        timed = (call for _, call, _ in every_layout(run) if call is not None)
        for call, *spent in zip(timed, *run.repeats, strict=True):
            if call.computes:
                seconds[call] += spent
    return Recorded(dict(calls), views, Counter(modules), dict(seconds))


def recorded_step(
    live: BuiltModel, stepping: Stepping, clock: Clock | None = None, times: int = 1, before: Before = None
) -> Recorded:
    """The same of a step by row (not by module); the calls of the optimizer stand under `update`.

    A call of the backward pass belongs to the row that made its autograd node.
    """
    if not stepping.optimizer.state:  # the optimizer makes its states, as the first step of many does
        for parameter in stepping.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with Recorder(calls=False, numbers_on_meta=True):
            stepping.update()
    recorder = Recorder(clock=clock, for_prediction=True, numbers_on_meta=True)

    def step() -> None:
        recorder.phase = "forward"
        loss = stepping.forward()
        recorder.differentiate(loss)
        del loss
        recorder.phase = "forward"
        with recorder.as_module(UPDATE):
            stepping.update()

    with recorder.of(live.model):
        _repeated(recorder, step, times, before)
    row_of = _rows_of_calls(live, recorder.run)
    modules: Counter[str] = Counter()
    for module, number in recorder.run.modules.items():
        modules[row_path(module, live.rows) or OUTSIDE] += number
    return _recorded(recorder.run, row_of, modules)


def _rows_of_calls(live: BuiltModel, run: Run) -> Callable[[Call], str]:
    """The row of a call: of the module that runs it, or that made its autograd node, or whose gradient it adds up."""
    leaves, makers = leaf_rows(live.model, live.rows), run.node_modules()

    def row_of(call: Call) -> str:
        if call.phase == "forward" or (call.phase == "again" and call.module):
            return UPDATE if call.module == UPDATE else row_path(call.module, live.rows) or OUTSIDE
        if call.weight is not None:
            return leaves.get(call.weight.rpartition(".")[0], OUTSIDE)
        return leaves.get(makers.owner(call.node) or "", OUTSIDE)

    return row_of
