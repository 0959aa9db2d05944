"""A system made ready to be timed, as its mode runs it: a forward, a training step, a generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import nn

from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.memory.training_step import Stepping, peak_of_steps
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.timing.devices import Clock
from xfcost.torch_models.timing.rows import NodeMakers, leaves_clocked, nodes_clocked, row_seconds
from xfcost.torch_models.timing.turns import Subject


def compiled(model: nn.Module) -> nn.Module:
    """`model` compiled by torch.compile; it compiles at the first call."""
    return torch.compile(model)  # type: ignore[return-value]


UPDATE: Final = "update"
"""The key of the optimizer's update among a training step's rows."""
PREFILL: Final = "prefill"
DECODE: Final = "decode"


class Ready(NamedTuple):
    """A subject, and what measures its peak bytes once its times are taken."""

    subject: Subject
    peak: Callable[[], int]


class Generated(NamedTuple):
    """The decode steps of a generation, and the positions of their tokens."""

    step: Architecture
    positions: Sequence[int]


def forward(architecture: Architecture, device: str, clock: Clock, *, compile_: bool) -> Ready:
    """A forward without gradients. A compiled model has no operations apart, and no seconds of rows."""
    live = build(architecture, device)
    call = _call_of(live, compile_=compile_)
    rows = None if compile_ else lambda: row_seconds(live, call, clock)
    return Ready(Subject({"": call}, rows), lambda: _peak(live, device))


def generation(prefill: Architecture, generated: Generated, device: str, clock: Clock, *, compile_: bool) -> Ready:
    """A prefill, then all decode steps; the rows of the two phases apart."""
    first = build(prefill, device)
    start = _call_of(first, compile_=compile_)
    calls, passes = {PREFILL: start}, {PREFILL: lambda: row_seconds(first, start, clock)}
    if generated.positions:
        live = build(generated.step, device)
        step = _call_of(live, compile_=compile_)

        def steps() -> None:
            for position in generated.positions:
                set_position(live.model, position)
                step()

        calls[DECODE] = steps
        passes[DECODE] = lambda: row_seconds(live, steps, clock)

    def rows() -> dict[str, float]:
        found = {phase: one() for phase, one in passes.items()}
        return {f"{phase}.{path}": spent for phase, paths in found.items() for path, spent in paths.items()}

    return Ready(Subject(calls, None if compile_ else rows), lambda: _peak(first, device))


def training_step(architecture: Architecture, optimizer: str, device: str, clock: Clock, *, compile_: bool) -> Ready:
    """Forward, backward, update by torch's optimizer; a row's seconds are those of its forward and its backward."""
    lists = device.startswith("cuda")
    live = build(architecture, device)
    stepping = Stepping(live, optimizer, lists=lists)
    if compile_:
        stepping.model = compiled(stepping.model)
    held = [(live, stepping)]  # freed before its peak is measured on another one
    del live, stepping

    def step() -> None:
        held[0][1]()

    def rows() -> dict[str, float]:
        return _step_seconds(*held[0], clock)

    def peak() -> int:
        if lists:
            return peak_on_cuda(step, device)
        held.clear()
        return peak_of_steps(build(architecture, device), optimizer, lists=lists)

    return Ready(Subject({"": step}, None if compile_ else rows), peak)


def _step_seconds(live: BuiltModel, stepping: Stepping, clock: Clock) -> dict[str, float]:
    """Seconds of every row in a step of training, and of the update."""
    seconds: dict[str, float] = {}
    makers = NodeMakers(live)
    with leaves_clocked(live, clock, seconds), makers.watching():
        loss = stepping.forward()
    with nodes_clocked(loss, makers, clock, seconds):
        loss.backward()
    del loss
    began = clock()
    stepping.update()
    return seconds | {UPDATE: clock() - began}


def _call_of(live: BuiltModel, *, compile_: bool) -> Callable[[], object]:
    model = compiled(live.model) if compile_ else live.model

    def call() -> object:
        with torch.no_grad():
            return model(*live.inputs)

    return call


def _peak(live: BuiltModel, device: str) -> int:
    """Peak bytes of one forward: the device's own figure on CUDA, live tensors elsewhere."""
    if not device.startswith("cuda"):
        return peak_bytes(live.model, live.inputs)
    with torch.no_grad():
        return peak_on_cuda(lambda: live.model(*live.inputs), device)


def peak_on_cuda(call: Callable[[], object], device: str) -> int:
    """The peak of torch's allocator."""
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device))
