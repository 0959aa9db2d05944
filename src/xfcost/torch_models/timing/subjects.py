"""A system of a spec made ready to be timed, as its mode runs it: a forward, a training step, a generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import peak_on, peak_on_cuda
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.timing.devices import Clock
from xfcost.torch_models.timing.rows import row_seconds
from xfcost.torch_models.timing.turns import Subject

UPDATE: Final = "update"
"""The key of the optimizer's update among a training step's rows."""
PREFILL: Final = "prefill"
DECODE: Final = "decode"


def forward(architecture: Architecture, device: str, clock: Clock, *, compile_: bool) -> Subject:
    """A forward without gradients. A compiled model has no operations apart, and no seconds of rows."""
    live = build(architecture, device)
    call = _call_of(live, compile_=compile_)
    rows = None if compile_ else lambda: row_seconds(live, call, clock)
    return Subject({"": call}, rows, lambda: _peak(live, device))


def generation(
    prefill: Architecture, step: Architecture, positions: Sequence[int], device: str, clock: Clock, *, compile_: bool
) -> Subject:
    """A prefill, then all decode steps, of tokens at `positions`; the rows of the two phases apart."""
    lives = {PREFILL: build(prefill, device)}
    calls = {PREFILL: _call_of(lives[PREFILL], compile_=compile_)}
    if positions:
        live = lives[DECODE] = build(step, device)
        one = _call_of(live, compile_=compile_)

        def steps() -> None:
            for position in positions:
                set_position(live.model, position)
                one()

        calls[DECODE] = steps

    def rows() -> dict[str, float]:
        found = {phase: row_seconds(lives[phase], call, clock) for phase, call in calls.items()}
        return {f"{phase}.{path}": spent for phase, paths in found.items() for path, spent in paths.items()}

    return Subject(calls, None if compile_ else rows, lambda: _peak(lives[PREFILL], device))


def training_step(architecture: Architecture, optimizer: str, device: str, clock: Clock, *, compile_: bool) -> Subject:
    """Forward, backward, update by torch's optimizer; a row's seconds are those of its forward and its backward."""
    live, on_cuda = build(architecture, device), device.startswith("cuda")
    stepping = Stepping(live, optimizer, lists=on_cuda)
    if compile_:
        stepping.call = torch.compile(stepping.model)

    def rows() -> dict[str, float]:
        seconds = row_seconds(live, stepping.forward, clock, backward=True)
        began = clock()
        stepping.update()
        return seconds | {UPDATE: clock() - began}

    def peak() -> int:
        if on_cuda:
            return peak_on_cuda(stepping, device)
        stepping.call = stepping.model
        return stepping.peak()

    return Subject({"": stepping}, None if compile_ else rows, peak)


def _call_of(live: BuiltModel, *, compile_: bool) -> Callable[[], object]:
    model: Any = torch.compile(live.model) if compile_ else live.model

    def call() -> object:
        with torch.no_grad():
            return model(*live.inputs)

    return call


def _peak(live: BuiltModel, device: str) -> int:
    return peak_on(device, lambda: live.model(*live.inputs), live.model, live.inputs)
