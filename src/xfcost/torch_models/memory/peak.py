"""Peak memory of a forward pass: walked on `meta` before anything runs, or measured while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from xfcost.ledger.errors import DeviceError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.units import size
from xfcost.torch_models.memory.limits import Limit, tightest

# Of an accelerator's free memory; the rest is its allocator's rounding. On the CPU the prediction holds the heap's.
_SHARE_OF_DEVICE: Final = 0.9
_MOST_BYTES: Final = 2**63


class FusedOnMeta(TorchFunctionMode):
    """On `meta`, fused attention and batch norm as the kernels do them, which keep less than torch does there.

    Fused attention: the output and one log-sum-exp per query, no matrix; torch decomposes it into the plain formula.
    Batch norm of running statistics: the output alone; torch makes room for a batch's statistics too.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is F.batch_norm and args[0].is_meta and not given["training"]:
            return torch.empty_like(args[0])
        if func is not F.scaled_dot_product_attention or not args[0].is_meta or given.get("attn_mask") is not None:
            return func(*args, **given)  # with a mask, kernels differ: the plain formula is the worse case
        q, _, v = args[:3]
        statistics = q.new_empty(q.shape[:-1], dtype=torch.float32)
        output = q.new_empty(*q.shape[:-1], v.shape[-1])
        del statistics
        return output


class LiveBytes(TorchDispatchMode):
    """Bytes of tensor storage that are alive, and their peak: an exact walk on `meta`, a measurement on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._seen: dict[int, int] = {}

    def see(self, tensor: Tensor) -> None:
        """Count a tensor's storage, once, until it dies."""
        storage = tensor.untyped_storage()
        key, held = storage._cdata, storage.nbytes()  # noqa: SLF001 - the storage's identity
        if key in self._seen:
            return
        self._seen[key] = held
        self.now += held
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._seen.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self.see(value)
        return result


@contextmanager
def watched(model: nn.Module, inputs: tuple[Tensor, ...]) -> Iterator[LiveBytes]:
    """LiveBytes with the model's parameters, buffers and inputs counted already."""
    live = LiveBytes()
    for tensor in (*model.parameters(), *model.buffers(), *inputs):
        live.see(tensor)
    with live:
        yield live


def peak_bytes(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Peak bytes of tensors alive during one forward, parameters, buffers and inputs included.

    On `meta` nothing is allocated, and fused attention is walked as the kernel that keeps no matrix of scores.
    """
    with watched(model, inputs) as live, FusedOnMeta(), torch.no_grad():
        model(*inputs)
    return live.peak


def kept_bytes(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Bytes of activations that one forward keeps for the backward pass: what autograd saves, parameters left out."""
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}  # noqa: SLF001
    kept: dict[int, int] = {}
    saved = []  # alive until all are counted: a storage's identity is free again when it dies

    def see(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:  # noqa: SLF001
            kept[storage._cdata] = storage.nbytes()  # noqa: SLF001
            saved.append(storage)
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor):
        model(*inputs)
    return sum(kept.values())


def check_addressable(ledger: Ledger) -> None:
    """Refuse tensors whose bytes torch can't number, on any device.

    Raises:
        DeviceError: one of them has 2⁶³ bytes or more.
    """
    largest = max(
        (max(row.params, row.attention_entries, 0 if row.macs else row.flops) for row in ledger.rows), default=0
    )
    needed = largest * ledger.bytes_per_element
    if needed >= _MOST_BYTES:
        raise DeviceError(
            f"{ledger.metadata.name} has a tensor of about {largest:,} elements ({needed:,} bytes), "
            "and torch numbers bytes up to 2⁶³; --no-trace counts it all the same"
        )


def check_room(needed: int, device: str, name: str, what: str = "one forward") -> None:
    """Refuse what can't fit, before it is built; `what` it is that needs so much.

    Raises:
        DeviceError: `needed` bytes are more than the tightest limit leaves, which is named.
    """
    limit = limit_of(device)
    if needed > limit.left:
        raise DeviceError(
            f"{name} needs {needed:,} bytes ({size(needed)}) for {what} on {device}, and {limit.name} leaves "
            f"{limit.left:,} bytes ({size(limit.left)}); take a smaller --N, --batch or --dtype, --attention fused, "
            "or leave --device out: counting needs no memory"
        )


def on_cpu(device: str) -> bool:
    """Are its tensors in the process's own memory, on the C library's heap?"""
    return device.partition(":")[0] == "cpu"


def limit_of(device: str) -> Limit:
    """What limits a run on `device` now; memory that host and device share is the host's."""
    if device.startswith("cuda"):
        free = int(torch.cuda.mem_get_info(device)[0] * _SHARE_OF_DEVICE)
        return Limit(free, f"free memory of {device}")
    return tightest()
