"""Training steps of any module: forward, backward, update; timed whole and by operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.recorder import recording
from xfcost.torch_models.any_model.run import stand_ins
from xfcost.torch_models.any_model.stand_in import How, reached
from xfcost.torch_models.any_model.training_recorder import TrainingRecorder, learned_from
from xfcost.torch_models.memory.peak import on_cpu, watched
from xfcost.torch_models.memory.training_step import optimizer
from xfcost.torch_models.timing.devices import Clock
from xfcost.torch_models.timing.subjects import UPDATE
from xfcost.torch_models.tracing.kernels import KernelOnMeta, NumbersOnMeta
from xfcost.torch_models.tracing.meta import shapes_on_meta
from xfcost.torch_models.tracing.saved_activations import differentiate


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
        recorder = TrainingRecorder(self.model, clock)
        with recording(self.model, recorder):
            recorder.differentiate(self.model(*self.args, **self.kwargs))
        began = clock()
        self._update()
        return recorder.seconds | {UPDATE: clock() - began}

    def peak(self) -> int:
        """Peak bytes of live tensors in two steps, the second with optimizer states. Works on `meta` too."""
        self.optimizer = optimizer(self.name, self.model, lists=self.lists)
        kernels = (KernelOnMeta(products=False), NumbersOnMeta())
        with watched(self.model, reached((self.args, self.kwargs))) as live, kernels[0], kernels[1]:
            self()
            self()
        return live.peak


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
