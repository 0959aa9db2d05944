"""Memory that a run obtains from the system anew, on every pass.

The C library gives large freed blocks back (`heap.py`). The next block has other pages, and the system fills each with
zeros at its first use: for a large tensor that can take longer than the arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from torch import nn

from xfcost.torch_models.memory.heap import Heap
from xfcost.torch_models.memory.process import TENSOR_OBJECTS, TRAINED_OBJECTS, HeapBytes
from xfcost.torch_models.shared.running_modules import running_modules

# Heaps of processes with different histories, and the passes: a first one, and those that count.
_SEEDS: Final = (1, 2)
PASSES: Final = 3


class NewBytes(HeapBytes):
    """Counts the bytes that simulated heaps obtain: `obtained` so far, the mean of several processes."""

    def __init__(self, *, trained: bool = False) -> None:
        """`trained`: with autograd's objects."""
        objects = TRAINED_OBJECTS if trained else TENSOR_OBJECTS
        super().__init__(*(Heap(seed) for seed in _SEEDS), objects=objects)
        self.of_module: dict[str, float] = defaultdict(float)
        self.running = [""]

    @property
    def obtained(self) -> float:
        """Bytes from the system until now."""
        return sum(heap.obtained for heap in self.heaps) / len(self.heaps)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.obtained
        results = super().__torch_dispatch__(func, types, args, kwargs)
        self.of_module[self.running[-1]] += self.obtained - before
        return results


def new_bytes(model: nn.Module, run: Callable[[], object], alive: NewBytes) -> dict[str, float]:
    """Module path -> bytes that one of many runs on `meta` obtains while the module runs; "" stands for the model.

    `run` runs the model once; `alive` has seen how it was built, if that left its traces in the heap.
    """
    with running_modules(model, alive.running), alive:
        for number in range(PASSES):
            run()
            if number == 0:
                alive.of_module.clear()
    return {name: held / (PASSES - 1) for name, held in alive.of_module.items() if held}
