"""The memory that a model really takes in this process: the growth of the process on the CPU, the allocator on CUDA.

On the CPU it is the high-water mark of the resident set while the model is built and run, less the resident set before
and less the pages of files that came in between. Torch, its libraries and the code of its usual kernels are loaded
before, and code that is read later counts as little. Free memory of the C library's heap is returned to the system
first, because a run that fills it would not grow. An allocator holds more than live tensors: freed blocks that are too
small for the next one, and workspaces of kernels.
"""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch import nn

from xfcost.ledger.measurements import MeasuredMemory
from xfcost.torch_models.memory.peak import check_room, on_cpu, peak_on_cuda
from xfcost.torch_models.timing.devices import on_device
from xfcost.torch_models.timing.systems import OnDevice

# The heap hardly grows after so many passes; of slow ones two are enough.
_PASSES: Final = 4
_SLOW_SECONDS: Final = 1.0


def memory_of(
    entrant: OnDevice, device: str, *, backward: bool, begin: Callable[[], None] = lambda: None
) -> MeasuredMemory:
    """Predicted and measured peak of building what is timed and running it; None where the system has no figure.

    `begin` is called when it is known to fit, before it is built; `backward`: does it run a backward pass?
    """
    check_room(entrant.needed, device, entrant.name, entrant.what, entrant.mend)
    begin()

    def run() -> None:
        with entrant.ready() as subject:
            for call in subject.calls.values():
                repeat(call)

    with on_device(entrant.name, device, entrant.dtype):
        return MeasuredMemory(predicted=entrant.predicted, measured=peak_of(run, device, backward=backward))


def peak_of(run: Callable[[], None], device: str, *, backward: bool) -> int | None:
    """The bytes that `run` takes at most, on a device that it uses; None where the system has no figure."""
    _warm_up(device, backward=backward)
    gc.collect()
    if device.startswith("cuda"):  # the peak of torch's allocator over what it holds before
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        return peak_on_cuda(run, device) - int(before)
    return _growth(run) if on_cpu(device) else None


def _growth(run: Callable[[], None]) -> int | None:
    """The growth of the resident set; None where the system has no high-water mark that can start again (Linux)."""
    try:
        if hasattr(library := ctypes.CDLL(None), "malloc_trim"):  # glibc returns the free pages of the heap
            library.malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the mark starts again from here
    except OSError:
        return None
    before, code = _resident("VmRSS"), _resident("RssFile")
    run()
    return _resident("VmHWM") - before - (_resident("RssFile") - code)


def _resident(field: str) -> int:
    found = re.search(field + r":\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii", errors="replace"))
    return int(found[1]) * 1024 if found else 0


def repeat(call: Callable[[], object]) -> None:
    """Call it until the heap hardly grows."""
    started = time.monotonic()
    for done in range(_PASSES):
        if done > 1 and time.monotonic() - started > _SLOW_SECONDS:
            return
        call()


def _warm_up(device: str, *, backward: bool) -> None:
    """Run the usual kernels on tiny tensors, so that their code and workspace are there."""
    with torch.device(device), torch.set_grad_enabled(backward):
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1, groups=8)]
        model = nn.Sequential(*layers, nn.Flatten(2), nn.LayerNorm(64), nn.Linear(64, 64), nn.Softmax(-1))
        answer = model(torch.randn(2, 3, 8, 8))
        torch.bmm(torch.randn(4, 8, 8), torch.randn(4, 8, 8))
        torch.mm(torch.randn(300, 300), torch.randn(300, 300))
        if backward:
            optimizer = torch.optim.AdamW(model.parameters())
            answer.sum().backward()
            optimizer.step()
