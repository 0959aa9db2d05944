"""Training steps of any module: forward, backward, update; timed whole and by operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.operations import Operations
from xfcost.torch_models.any_model.run import learned_from, stand_ins
from xfcost.torch_models.any_model.stand_in import How, reached
from xfcost.torch_models.memory.peak import on_cpu
from xfcost.torch_models.memory.training_step import optimizer
from xfcost.torch_models.running.recorder import Recorder, differentiate
from xfcost.torch_models.timing.devices import Clock
from xfcost.torch_models.timing.subjects import UPDATE
from xfcost.torch_models.tracing.meta import shapes_on_meta


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
    how: How = "meta" if device == "meta" else "real"
    there = None if device == "meta" else device
    placed = stand_ins(how, model, given.args, given.kwargs, training=True, device=there)
    with placed as (args, kwargs), torch.enable_grad():
        yield ModuleSteps(model, args, kwargs, name, device)


def predicted_peak(model: nn.Module, given: Given, name: str) -> int:
    """The same on `meta`, where nothing is allocated."""
    with steps_on("meta", model, given, name) as steps, shapes_on_meta():
        return steps.peak()
