"""Peak memory of a forward pass: predicted on `meta` before the run, or measured in a run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from xfcost.ledger.errors import NoRoomError
from xfcost.ledger.units import size
from xfcost.torch_models.memory.limits import Limit, tightest
from xfcost.torch_models.shared.private_torch import TorchDispatchMode, pytree, storage_identity
from xfcost.torch_models.tracing.kernels import attention_operands, laid_out, runs_in_kernel, statistics

# The usable share of an accelerator's free memory; the rest is allocator rounding.
_SHARE_OF_DEVICE: Final = 0.9
# What a run on the CPU must have free beside its live tensors: this part of them, and what kernels load at first use.
_MARGIN: Final = 2
_FIRST_USE: Final = 64 * 2**20

_BATCH_NORM: Final = ("input", "running_mean", "running_var", "weight", "bias", "training")


class FusedOnMeta(TorchFunctionMode):
    """Fused attention and batch norm on `meta` allocate as the kernels do, less than torch's own `meta` versions.

    Fused attention: the output and one log-sum-exp per query, no matrix; torch decomposes it into the plain formula.
    Batch norm with running statistics: the output only; torch also allocates a batch's statistics.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is F.batch_norm:
            given = dict(zip(_BATCH_NORM, args, strict=False)) | options
            return (
                func(*args, **options)
                if given["training"] or not given["input"].is_meta
                else torch.empty_like(given["input"])
            )
        if func is not F.scaled_dot_product_attention:
            return func(*args, **options)
        operands = attention_operands(args, options)
        q, v = operands["query"], operands["value"]
        if not runs_in_kernel(q) or operands.get("attn_mask") is not None:
            return func(*args, **options)  # kernels differ for masks: torch's plain formula is the worst case
        beside = statistics(q)
        output = laid_out(q, v)
        del beside
        return output


class LiveBytes(TorchDispatchMode):
    """Bytes of live tensor storage, and their peak: exact on `meta`, measured on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._seen: dict[int, int] = {}

    def see(self, tensor: Tensor) -> None:
        """Count a tensor's storage once, until it is freed."""
        storage = tensor.untyped_storage()
        key = storage_identity(storage)
        if key not in self._seen:
            self.take(key, storage.nbytes())
            weakref.finalize(storage, self.give, key)

    def take(self, key: int, held: int) -> None:
        """A storage has got its bytes."""
        self._seen[key] = held
        self.now += held
        self.peak = max(self.peak, self.now)

    def give(self, key: int) -> None:
        """It has given them back."""
        self.now -= self._seen.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in pytree.tree_iter(result):
            if isinstance(value, Tensor):
                self.see(value)
        return result


@contextmanager
def watched(model: nn.Module, inputs: Iterable[Tensor]) -> Iterator[LiveBytes]:
    """LiveBytes that already include the model's parameters, buffers and inputs."""
    live = LiveBytes()
    for tensor in (*model.parameters(), *model.buffers(), *inputs):
        live.see(tensor)
    with live:
        yield live


def peak_bytes(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Peak bytes of live tensors in one forward, parameters, buffers and inputs included.

    Nothing is allocated on `meta`, and fused attention keeps no score matrix.
    """
    return peak_of_call(lambda: model(*inputs), model, inputs)


def peak_of_call(call: Callable[[], object], model: nn.Module, inputs: Iterable[Tensor]) -> int:
    """The same of any call of `model` on tensors `inputs`."""
    with watched(model, inputs) as live, FusedOnMeta(), torch.no_grad():
        call()
    return live.peak


def bytes_to_run(live: int, device: str) -> int:
    """The free memory that a run is held against: its peak of live tensors, on the CPU with a margin.

    There the process grows by more: freed blocks that are too small for the next one, and workspaces of kernels.
    """
    return live + live // _MARGIN + _FIRST_USE if on_cpu(device) else live


_MEND: Final = (
    "take a smaller --N, --batch or --dtype, --attention fused, --composed, which holds every distinct block once, or "
    "leave --device out: counting needs no memory"
)


def check_room(needed: int, device: str, name: str, what: str = "one forward", mend: str = _MEND) -> None:
    """Refuse a run that does not fit, before it allocates; `what` names the run, `mend` says how it would fit.

    Raises:
        NoRoomError: `needed` bytes are more than the tightest limit leaves, which is named.
    """
    limit = limit_on(device)
    if needed > limit.left:
        raise NoRoomError(
            f"{name} needs {needed:,} bytes ({size(needed)}) for {what} on {device}, and {limit.name} leaves "
            f"{limit.left:,} bytes ({size(limit.left)}); {mend}",
            needed,
            limit.left,
        )


class WithinRoom(LiveBytes):
    """Refuses the tensor with which what is made inside no longer fits; its memory is not touched yet."""

    def __init__(self, device: str, name: str, what: str, mend: str) -> None:
        super().__init__()
        self._left, self._words = limit_on(device).left, (device, name, what, mend)

    def take(self, key: int, held: int) -> None:
        super().take(key, held)
        if self.now > self._left:
            check_room(self.now, *self._words)


def on_cpu(device: str) -> bool:
    """Are the device's tensors in the process's own memory?"""
    return device.partition(":")[0] == "cpu"


def limit_on(device: str) -> Limit:
    """The tightest limit for a run on `device`. A device that shares memory with the host has the host's limits."""
    if device.startswith("cuda"):
        free = int(torch.cuda.mem_get_info(device)[0] * _SHARE_OF_DEVICE)
        return Limit(free, f"free memory of {device}")
    return tightest()
