"""What a process grows by on the CPU while a model is built and run: walked on `meta` before anything is allocated.

Three causes are added up. Tensors that are alive, the construction's and the optimizer's temporaries among them.
Workspace: copies of a convolution's operands in oneDNN's own layout, while it runs. And what the C library's heap
doesn't give back (`heap.py`). Not part of it: torch itself and its libraries, which are there before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from xfcost.ledger.metadata import ProcessMemory
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import Live, build
from xfcost.torch_models.memory.heap import Heap
from xfcost.torch_models.memory.peak import FusedOnMeta
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.tracing.kernels import KernelOnMeta, NumbersOnMeta

# Passes after which the heap hardly grows.
_PASSES: Final = 4
# Edges of freed blocks that the thread's cache holds, usually and at worst: an empirical allowance (glibc 2.36, torch
# 2.13, benchmarks/memory.py). A training step makes more small objects, the nodes of autograd, which take such edges.
_EDGES_FORWARD: Final = (8, 32)
_EDGES_TRAINING: Final = (20, 320)
# Code of kernels and buffers of MKL and oneDNN that are first touched by the run itself: 14 to 20 MB were measured.
_FIRST_USE: Final = 32 * 2**20


class HeapBytes(TorchDispatchMode):
    """Storage of tensors as it comes and goes, taken from simulated heaps; bytes now, and with workspace their peak."""

    def __init__(self, *heaps: Heap) -> None:
        super().__init__()
        self.heaps = heaps
        self.live = 0
        self.peak = 0
        self._blocks: dict[int, tuple[int, list[tuple[int, int]]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self._see(value)
        self._pass_through(workspace_bytes(func._schema.name, args, result))  # noqa: SLF001 - an operator's name
        return result

    def _see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, held = storage._cdata, storage.nbytes()  # noqa: SLF001 - the storage's identity
        if key in self._blocks:
            return
        self._blocks[key] = held, [heap.take(held) for heap in self.heaps]
        self.live += held
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        held, blocks = self._blocks.pop(key)
        self.live -= held
        for heap, block in zip(self.heaps, blocks, strict=True):
            heap.give(block)

    def _pass_through(self, held: int) -> None:
        """A block that is taken and given back within one kernel."""
        if not held:
            return
        self.peak = max(self.peak, self.live + held)
        for heap in self.heaps:
            heap.give(heap.take(held))


def workspace_bytes(operator: str, args: Any, result: Any) -> int:
    """Bytes of the copies that oneDNN makes of a convolution's operands in blocks of channels; 0 for other operators.

    Measured on a processor with AVX-512, one operator at a time. Forwards, x * w -> y: y's and w's. Backwards: x's and
    y's, or w's where that is more; in groups y's. A kernel of one position works in the layout that it finds. Products,
    norms, softmax and activations took nothing beside their tensors.
    """
    if operator == "aten::convolution":
        weight, made = args[1], result.nbytes + args[1].nbytes
    elif operator == "aten::convolution_backward":
        made_gradient, x, weight = args[:3]
        groups = args[9]
        made = max(x.nbytes + made_gradient.nbytes, weight.nbytes) if groups == 1 else made_gradient.nbytes
    else:
        return 0
    return int(made) if prod(weight.shape[2:]) > 1 else 0


def of_forward(architecture: Architecture) -> ProcessMemory:
    """Of building the model and of calls of it without gradients."""

    def run(live: Live) -> None:
        with FusedOnMeta(), torch.no_grad():
            for _ in range(_PASSES):
                live.model(*live.inputs)

    return _walked(architecture, run, _EDGES_FORWARD)


def of_training(architecture: Architecture, optimizer: str) -> ProcessMemory:
    """Of building the model and of steps of training, updates by torch's `optimizer`, one parameter after the other."""

    def run(live: Live) -> None:
        stepping = Stepping(live, optimizer, lists=False)
        with KernelOnMeta(products=False), NumbersOnMeta():
            for _ in range(_PASSES):
                stepping()

    return _walked(architecture, run, _EDGES_TRAINING)


def _walked(architecture: Architecture, run: Callable[[Live], None], edges: tuple[int, int]) -> ProcessMemory:
    usual, worst = (Heap(held) for held in edges)
    with HeapBytes(usual, worst) as alive:
        run(build(architecture))
    return ProcessMemory(
        predicted=usual.peak,
        low=min(alive.peak, usual.peak),
        high=max(worst.peak, usual.peak) + _FIRST_USE,
    )
