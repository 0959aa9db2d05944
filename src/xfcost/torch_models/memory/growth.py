"""The memory that a model really takes in this process: the growth of the process on the CPU, the allocator on CUDA.

On the CPU it is the high-water mark of the resident set while the model is built and run, less the resident set before.
Torch, its libraries and the code of its usual kernels are loaded before, as in the prediction (`process.py`).
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch
from torch import nn

from xfcost.ledger.measurements import Memory
from xfcost.ledger.metadata import ProcessMemory
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.peak import check_room, on_cpu, peak_bytes
from xfcost.torch_models.memory.process import forward_memory, training_memory
from xfcost.torch_models.memory.training_step import Stepping, peak_of_steps
from xfcost.torch_models.shared.no_compiler import no_compiler

# The heap hardly grows after so many passes; of slow ones two are enough.
_PASSES: Final = 4
_SLOW_SECONDS: Final = 10.0


def memory_of(architectures: Sequence[Architecture], device: str, optimizer: str | None) -> Memory:
    """Predicted and measured peak of building and running models one after another; with `optimizer`, training steps.

    Raises:
        NoRoomError: one of them does not fit; nothing is allocated.
    """
    predictions = [_predicted(one, device, optimizer) for one in architectures]
    for one, needs in zip(architectures, predictions, strict=True):
        needed = needs if isinstance(needs, int) else needs.high
        check_room(needed, device, one.spec.name, "one forward" if optimizer is None else "a step of training")
    measured = [measured_peak(one, device, optimizer) for one in architectures]
    known = [peak for peak in measured if peak is not None]
    largest = max(predictions, key=lambda needs: needs if isinstance(needs, int) else needs.predicted)
    peak = max(known) if known else None
    if isinstance(largest, int):
        return Memory(predicted=largest, measured=peak)
    return Memory(predicted=largest.predicted, low=largest.low, high=largest.high, measured=peak)


def _predicted(architecture: Architecture, device: str, optimizer: str | None) -> ProcessMemory | int:
    """The growth of the process on the CPU; elsewhere the peak of live tensors."""
    with no_compiler():
        if on_cpu(device):
            return forward_memory(architecture) if optimizer is None else training_memory(architecture, optimizer)
        live = build(architecture)
        return peak_bytes(live.model, live.inputs) if optimizer is None else _peak_of_steps(live, optimizer, device)


def _peak_of_steps(live: BuiltModel, optimizer: str, device: str) -> int:
    return peak_of_steps(live, optimizer, lists=device.startswith("cuda"))


def measured_peak(architecture: Architecture, device: str, optimizer: str | None) -> int | None:
    """The bytes that building and running the model take at most; None where the system has no figure.

    The model runs without gradients, or with `optimizer` in training steps.
    """
    _warm_up(device, backward=optimizer is not None)
    gc.collect()
    if device.startswith("cuda"):
        return _allocated(lambda: _run(build(architecture, device), device, optimizer), device)
    return _growth(lambda: _run(build(architecture, device), device, optimizer)) if on_cpu(device) else None


def _growth(run: Callable[[], None]) -> int | None:
    """The growth of the resident set; None where the system has no high-water mark that can start again (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the mark starts again from here
    except OSError:
        return None
    before = _resident("VmRSS")
    run()
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    found = re.search(field + r":\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii", errors="replace"))
    return int(found[1]) * 1024 if found else 0


def _allocated(run: Callable[[], None], device: str) -> int:
    """The peak of torch's allocator over what it holds before."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device) - before)


def _run(live: BuiltModel, device: str, optimizer: str | None) -> None:
    if optimizer is None:
        with torch.no_grad():
            _repeat(lambda: live.model(*live.inputs))
    else:
        _repeat(Stepping(live, optimizer, lists=device.startswith("cuda")))


def _repeat(call: Callable[[], object]) -> None:
    started = time.monotonic()
    for done in range(_PASSES):
        if done > 1 and time.monotonic() - started > _SLOW_SECONDS:
            return
        call()


def _warm_up(device: str, *, backward: bool) -> None:
    """Run the usual kernels on tiny tensors, so that their code and workspace are there."""
    with torch.device(device), torch.set_grad_enabled(backward):
        layers = [
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.GELU(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
        ]
        model = nn.Sequential(*layers, nn.Flatten(2), nn.LayerNorm(64), nn.Linear(64, 64), nn.Softmax(-1))
        answer = model(torch.randn(2, 3, 8, 8))
        torch.bmm(torch.randn(4, 8, 8), torch.randn(4, 8, 8))
        torch.mm(torch.randn(300, 300), torch.randn(300, 300))
        if backward:
            optimizer = torch.optim.AdamW(model.parameters())
            answer.sum().backward()
            optimizer.step()
