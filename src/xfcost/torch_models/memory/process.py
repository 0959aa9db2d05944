"""The memory growth of a process that builds and runs a model on the CPU, predicted on `meta`.

The sum of three parts. Live tensors, temporaries of the construction and the optimizer included. Blocks that kernels
take and free (`workspace.py`). Heap memory that the C library does not return (`heap.py`). Torch itself and its
libraries are not part of it: they are loaded before.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

from xfcost.ledger.metadata import ProcessMemory
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.heap import Heap
from xfcost.torch_models.memory.peak import FusedOnMeta, LiveBytes
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.memory.workspace import workspace
from xfcost.torch_models.tracing.kernels import KernelOnMeta, NumbersOnMeta

# The heap hardly grows after this number of passes.
_PASSES: Final = 4
# Processes with different histories: the prediction is the median of their peaks. Training peaks differ less.
_SEEDS_FORWARD: Final = range(1, 6)
_SEEDS_TRAINING: Final = range(1, 4)
# Kernel code and buffers of MKL and oneDNN that the first run loads: 14 to 20 MB measured.
_FIRST_USE: Final = 32 * 2**20
# A process's peak over the highest simulated one: up to 1.08 measured.
_WORST: Final = 1.15
# Bytes of a tensor's small objects: its storage before the data; then the tensor and its version; in training those of
# autograd. They fill edges of freed blocks.
_STORAGE: Final = 96
TENSOR_OBJECTS: Final = (176, 24)
TRAINED_OBJECTS: Final = (*TENSOR_OBJECTS, 104)
# Buffers that MKL takes in the first products and keeps: 0.8 to 2.2 MB measured.
_PRODUCTS: Final = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})
_PRODUCT_BUFFERS: Final = (803_488, 811_680)


class LinearInPlace(TorchFunctionMode):
    """A linear layer on a strided input adds its bias in place, as on a device; under a dispatch mode torch copies."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and len(args) == 3 and args[2] is not None and args[0].ndim > 2:  # noqa: PLR2004 - its operands
            x, weight, bias = args
            if not x.is_contiguous():
                return func(x, weight).add_(bias)
        return func(*args, **(kwargs or {}))


class HeapBytes(LiveBytes):
    """Takes the storage of live tensors from simulated heaps; current bytes, and their peak with workspace."""

    def __init__(self, *heaps: Heap, objects: tuple[int, ...] = TENSOR_OBJECTS) -> None:
        super().__init__()
        self.heaps = heaps
        self._objects = objects
        self._buffers = list(_PRODUCT_BUFFERS)
        self._blocks: dict[int, list[tuple[int, ...]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        operator = func._schema.name  # noqa: SLF001 - no public name
        blocks = workspace(operator, args)
        for index, result in enumerate(tree_iter(results)):
            of_result = blocks.get(index)
            kept = self._borrow(of_result.passing, of_result.kept) if of_result else []
            if isinstance(result, Tensor):
                self.see(result)
            self._return(kept)
        if self._buffers and operator in _PRODUCTS:
            buffer = self._buffers.pop()
            for heap in self.heaps:
                heap.take_object(buffer)
        return results

    def take(self, key: int, held: int) -> None:
        super().take(key, held)
        self._blocks[key] = [_tensor(heap, held, self._objects) for heap in self.heaps]

    def give(self, key: int) -> None:
        super().give(key)
        self._return(self._blocks.pop(key, []))

    def _borrow(self, passing: tuple[int, ...], kept: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Take blocks of a kernel, free those that pass; the others, to be freed when its result is there."""
        self.peak = max(self.peak, self.now + sum(passing) + sum(kept))
        first = [tuple(heap.take(held) for held in passing) for heap in self.heaps]
        later = [tuple(heap.take(held) for held in kept) for heap in self.heaps]
        self._return(first)
        return later

    def _return(self, blocks: list[tuple[int, ...]]) -> None:
        for heap, of_heap in zip(self.heaps, blocks, strict=False):
            for block in of_heap:
                heap.give(block)


def _tensor(heap: Heap, held: int, objects: tuple[int, ...]) -> tuple[int, ...]:
    """The blocks of a tensor with a storage of its own."""
    storage = heap.take_object(_STORAGE)
    data = (heap.take(held),) if held else ()
    return (*data, storage, *map(heap.take_object, objects))


def forward_memory(architecture: Architecture) -> ProcessMemory:
    """Memory of building the model and of calls without gradients."""

    def run(live: BuiltModel) -> None:
        with FusedOnMeta(), LinearInPlace(), torch.no_grad():
            for _ in range(_PASSES):
                live.model(*live.inputs)

    return _walked(architecture, run, [Heap(seed) for seed in _SEEDS_FORWARD], TENSOR_OBJECTS)


def training_memory(architecture: Architecture, optimizer: str) -> ProcessMemory:
    """Memory of building the model and of training steps with torch's `optimizer`, one parameter at a time."""

    def run(live: BuiltModel) -> None:
        stepping = Stepping(live, optimizer, lists=False)
        with KernelOnMeta(products=False), NumbersOnMeta(), LinearInPlace():
            for _ in range(_PASSES):
                stepping()

    return _walked(architecture, run, [Heap(seed) for seed in _SEEDS_TRAINING], TRAINED_OBJECTS)


def _walked(
    architecture: Architecture, run: Callable[[BuiltModel], None], heaps: list[Heap], objects: tuple[int, ...]
) -> ProcessMemory:
    with HeapBytes(*heaps, objects=objects) as alive:
        run(build(architecture))
    peaks = [heap.peak for heap in heaps]
    return ProcessMemory(
        predicted=round(median(peaks)),
        low=min(alive.peak, *peaks),
        high=round(max(alive.peak, *peaks) * _WORST) + _FIRST_USE,
    )
