"""A network on a device, ready to be run whole or with its calls recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.calls import Recorded, recorded, recorded_step
from xfcost.torch_models.running.recorder import Clock


class Runner(NamedTuple):
    """A network on the device: run once, or so many times with its calls recorded and timed."""

    whole: Callable[[], object]
    recorded: Callable[[int], Recorded]
    before: Callable[[], object]
    """Is called before each run, untimed."""


def forward_runner(live: BuiltModel, clock: Clock, before: Callable[[], object]) -> Runner:
    """Runs forwards."""

    def whole() -> object:
        with torch.no_grad():
            return live.model(*live.inputs)

    return Runner(whole, lambda times: recorded(live.model, live.inputs, clock, times, before), before)


def step_runner(live: BuiltModel, optimizer: str, device: str, clock: Clock, before: Callable[[], object]) -> Runner:
    """Runs training steps."""
    stepping = Stepping(live, optimizer, lists=device.startswith("cuda"))
    return Runner(stepping, lambda times: recorded_step(live, stepping, clock, times, before), before)
