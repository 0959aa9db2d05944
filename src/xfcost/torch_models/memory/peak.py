"""Peak memory of a forward pass: predicted on `meta` before the run, or measured in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import NoRoomError
from xfcost.ledger.units import size
from xfcost.torch_models.memory.shortage import Limit, tightest
from xfcost.torch_models.running.recorder import Recorder

# The usable share of an accelerator's free memory; the rest is allocator rounding.
_SHARE_OF_DEVICE: Final = 0.9
# What a run on the CPU must have free besides its live tensors: this part of them, and what kernels load at first use.
_MARGIN: Final = 2
_FIRST_USE: Final = 64 * 2**20


def peak_bytes(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Peak bytes of live tensors in one forward, parameters, buffers and inputs included.

    Nothing is allocated on `meta`, and fused attention keeps no score matrix.
    """
    return peak_of_call(lambda: model(*inputs), model, inputs)


def peak_of_call(call: Callable[[], object], model: nn.Module, inputs: Iterable[Tensor]) -> int:
    """Those of any call of `model` on tensors `inputs`."""
    with torch.no_grad():
        return peak_in(Recorder(model, inputs, calls=False), call, model)


def peak_in(
    recorder: Recorder, call: Callable[[], object], model: nn.Module, first: Callable[[], object] | None = None
) -> int:
    """The same of any call, after a `first` one, in a recorder that has the model and its inputs."""
    with recorder.of(model):
        if first is not None:
            first()
        call()
    return recorder.run.peak_bytes()


def peak_on(device: str, call: Callable[[], object], model: nn.Module, inputs: Iterable[Tensor]) -> int:
    """Peak bytes of a call of `model` on a device: the device's own figure on CUDA, of live tensors elsewhere."""
    with torch.no_grad():
        return peak_on_cuda(call, device) if device.startswith("cuda") else peak_of_call(call, model, inputs)


def peak_on_cuda(call: Callable[[], object], device: str) -> int:
    """The peak of torch's allocator."""
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device))


def bytes_to_run(live: int, device: str) -> int:
    """The free memory that a run is held against: its peak of live tensors, on the CPU with a margin.

    There the process grows by more: freed blocks that are too small for the next one, and workspaces of kernels.
    """
    return live + live // _MARGIN + _FIRST_USE if on_cpu(device) else live


FOR_SPECS: Final = (
    "take a smaller --N, --batch or --dtype, --attention fused, --composed, which holds every distinct block once, or "
    "leave --device out: counting needs no memory"
)


def check_room(needed: int, device: str, name: str, what: str = "one forward", mend: str = FOR_SPECS) -> None:
    """Refuse a run that does not fit, before it allocates; `what` names the run, `mend` says how it would fit."""
    limit = limit_on(device)
    if needed > limit.left:
        raise NoRoomError(
            f"{name} needs {needed:,} bytes ({size(needed)}) for {what} on {device}, and {limit.name} leaves "
            f"{limit.left:,} bytes ({size(limit.left)}); {mend}",
            needed,
            limit.left,
        )


def within_room(device: str, name: str, what: str, mend: str) -> Recorder:
    """Refuses the tensor with which what is made inside no longer fits; its memory is not touched yet."""
    left = limit_on(device).left

    def check(live: int) -> None:
        if live > left:
            check_room(live, device, name, what, mend)

    return Recorder(calls=False, live=check)


def on_cpu(device: str) -> bool:
    """Are the device's tensors in the process's own memory?"""
    return device.partition(":")[0] == "cpu"


def limit_on(device: str) -> Limit:
    """The tightest limit for a run on `device`. A device that shares memory with the host has the host's limits."""
    if device.startswith("cuda"):
        free = int(torch.cuda.mem_get_info(device)[0] * _SHARE_OF_DEVICE)
        return Limit(free, f"free memory of {device}")
    return tightest()
