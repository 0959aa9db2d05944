"""Memory that a run obtains from the system anew, on every pass, and what that takes.

The C library gives large freed blocks back (`heap.py`). The next block has other pages, and the system fills each with
zeros at its first use: for a large tensor that can take longer than the arithmetic.
"""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from torch import nn

from xfcost.torch_models.memory.heap import Heap
from xfcost.torch_models.memory.process import OBJECTS, HeapBytes
from xfcost.torch_models.shared.running_modules import running_modules

# Heaps of processes with different histories, and the passes: a first one, and those that count.
_SEEDS: Final = (1, 2)
PASSES: Final = 3
# Options of glibc's mallopt (malloc.h): blocks that may be mappings, and the free end that is given back.
_MAPPINGS: Final = -4
_TRIMMED: Final = -1
_KEEPING: Final = ((_MAPPINGS, 0), (_TRIMMED, 2**31 - 1))
_USUAL: Final = ((_MAPPINGS, 65536), (_TRIMMED, 64 * 2**20))


class NewBytes(HeapBytes):
    """Counts the bytes that simulated heaps obtain: `obtained` so far, the mean of several processes."""

    def __init__(self, *, trained: bool = False) -> None:
        """`trained`: with autograd's objects."""
        super().__init__(*(Heap(seed) for seed in _SEEDS), objects=OBJECTS[trained])
        self.of_module: dict[str, float] = defaultdict(float)
        self.running = [""]

    @property
    def obtained(self) -> float:
        """Bytes from the system until now."""
        return sum(heap.obtained for heap in self.heaps) / len(self.heaps)

    def take(self, key: int, held: int) -> None:
        before = self.obtained
        super().take(key, held)
        self._grown(before)

    def _borrow(self, passing: tuple[int, ...], kept: tuple[int, ...]) -> list[tuple[int, ...]]:
        before = self.obtained
        blocks = super()._borrow(passing, kept)
        self._grown(before)
        return blocks

    def _grown(self, before: float) -> None:
        self.of_module[self.running[-1]] += self.obtained - before


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


@contextmanager
def memory_is_kept() -> Iterator[bool]:
    """While it lasts, this process gives no memory back, and finds what it needs in the pages that it has.

    True where the C library can: glibc, which afterwards keeps to its usual limits without adapting them.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    option: Any = getattr(library, "mallopt", None)
    trim: Any = getattr(library, "malloc_trim", None)
    if option is None or trim is None:
        yield False
        return
    try:
        taken = [option(*one) for one in _KEEPING]
        yield all(taken)
    finally:
        for one in _USUAL:
            option(*one)
        trim(0)
