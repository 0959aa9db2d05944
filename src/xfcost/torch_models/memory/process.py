"""The memory growth of a process that builds and runs a model on the CPU, predicted on `meta`.

The sum of three parts. Live tensors, temporaries of the construction and the optimizer included. Workspace: copies of a
convolution's operands in oneDNN's own layout. Heap memory that the C library does not return (`heap.py`). Torch itself
and its libraries are not part of it: they are loaded before.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch

from xfcost.ledger.metadata import ProcessMemory
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.heap import Heap
from xfcost.torch_models.memory.peak import FusedOnMeta, LiveBytes
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.tracing.kernels import KernelOnMeta, NumbersOnMeta

# The heap hardly grows after this number of passes.
_PASSES: Final = 4
# Edges of freed blocks in the thread's cache, usual and maximal: measured (glibc 2.36, torch
# 2.13, benchmarks/memory.py). A training step creates more small objects (autograd nodes), which use such edges.
_EDGES_FORWARD: Final = (8, 32)
_EDGES_TRAINING: Final = (20, 320)
# Kernel code and buffers of MKL and oneDNN that the first run loads: 14 to 20 MB measured.
_FIRST_USE: Final = 32 * 2**20


class HeapBytes(LiveBytes):
    """Takes the storage of live tensors from simulated heaps; current bytes, and their peak with workspace."""

    def __init__(self, *heaps: Heap) -> None:
        super().__init__()
        self.heaps = heaps
        self._blocks: dict[int, list[tuple[int, int]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self._pass_through(workspace_bytes(func._schema.name, args, result))  # noqa: SLF001 - an operator's name
        return result

    def take(self, key: int, held: int) -> None:
        super().take(key, held)
        self._blocks[key] = [heap.take(held) for heap in self.heaps]

    def give(self, key: int) -> None:
        super().give(key)
        for heap, block in zip(self.heaps, self._blocks.pop(key), strict=True):
            heap.give(block)

    def _pass_through(self, held: int) -> None:
        """A block that is taken and freed within one kernel."""
        if not held:
            return
        self.peak = max(self.peak, self.now + held)
        for heap in self.heaps:
            heap.give(heap.take(held))


def workspace_bytes(operator: str, args: Any, result: Any) -> int:
    """Bytes of oneDNN's copies of a convolution's operands in blocks of channels; 0 for other operations.

    Measured on a processor with AVX-512, one operation at a time. Forward, x * w -> y: copies of y and w. Backward: of
    x and y, or of w if that is more; with groups, of y. A kernel of one position needs no copies. Products, norms,
    softmax and activations used no memory besides their tensors.
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


def forward_memory(architecture: Architecture) -> ProcessMemory:
    """Memory of building the model and of calls without gradients."""

    def run(live: BuiltModel) -> None:
        with FusedOnMeta(), torch.no_grad():
            for _ in range(_PASSES):
                live.model(*live.inputs)

    return _walked(architecture, run, _EDGES_FORWARD)


def training_memory(architecture: Architecture, optimizer: str) -> ProcessMemory:
    """Memory of building the model and of training steps with torch's `optimizer`, one parameter at a time."""

    def run(live: BuiltModel) -> None:
        stepping = Stepping(live, optimizer, lists=False)
        with KernelOnMeta(products=False), NumbersOnMeta():
            for _ in range(_PASSES):
                stepping()

    return _walked(architecture, run, _EDGES_TRAINING)


def _walked(architecture: Architecture, run: Callable[[BuiltModel], None], edges: tuple[int, int]) -> ProcessMemory:
    usual, worst = (Heap(held) for held in edges)
    with HeapBytes(usual, worst) as alive:
        run(build(architecture))
    return ProcessMemory(
        predicted=usual.peak, low=min(alive.peak, usual.peak), high=max(worst.peak, usual.peak) + _FIRST_USE
    )
