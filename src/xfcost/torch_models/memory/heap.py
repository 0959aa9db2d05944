"""Simulates the C library's heap under the CPU's tensors: memory that stays resident after tensors are freed.

glibc 2.26 and later (malloc/malloc.c). A block of at least the mmap threshold is a separate mapping, returned to the
system when freed; each such free raises the threshold to the block's size, up to 32 MiB. Smaller blocks share one heap:
the smallest hole that fits serves a block, otherwise the heap grows. The heap shrinks only at its end.

torch asks for blocks aligned to 64 bytes. `posix_memalign` takes more than the block and frees the edges, and the
thread's cache of small blocks holds such edges for a while. A hole with a held edge is slightly too small for the next
block of the same size, so that the heap grows although enough of it is free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Final

_PAGE: Final = 4096
_GRAIN: Final = 16
# posix_memalign adds this to a block: its header, the alignment and the smallest block.
_EDGE: Final = 16 + 64 + 32
_FIRST_THRESHOLD: Final = 128 * 1024
_LAST_THRESHOLD: Final = 32 * 2**20
_TOP_PAD: Final = 128 * 1024


class Heap:
    """Takes and frees blocks; `resident` bytes now and their `peak`.

    `held_edges`: the number of edges of freed blocks in the thread's cache at a time; 0 joins all holes.
    """

    def __init__(self, held_edges: int = 0) -> None:
        self.held_edges = held_edges
        self.peak = 0
        self._threshold = _FIRST_THRESHOLD
        self._mapped = 0
        self._top = 0  # the heap is free from this address to its end
        self._end = 0
        self._holes: list[tuple[int, int]] = []  # (size, start), sorted
        self._size_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}
        self._edges: deque[int] = deque()

    @property
    def resident(self) -> int:
        """Bytes of mappings, and of the heap up to its end."""
        return self._mapped + self._end

    def take(self, requested: int) -> tuple[int, int]:
        """Take a block of `requested` bytes: returns its start (-1 for a mapping) and its full size, for `give`."""
        size = _rounded(requested + _EDGE, _GRAIN)
        found = bisect_left(self._holes, (size, 0))
        if found < len(self._holes):
            hole, start = self._holes[found]
            self._fill(start)
            if hole > size:
                self._open(start + size, hole - size)
        elif self._end - self._top < size >= self._threshold:
            start, size = -1, _rounded(size, _PAGE)
            self._mapped += size
        else:
            start = self._top
            self._top += size
            if self._top > self._end:
                self._end = _rounded(self._top + _TOP_PAD, _PAGE)
        self.peak = max(self.peak, self.resident)
        return start, size

    def give(self, block: tuple[int, int]) -> None:
        """Free a block: a mapping goes to the system, other blocks to the heap."""
        start, size = block
        if start < 0:
            self._mapped -= size
            if self._threshold < size <= _LAST_THRESHOLD:
                self._threshold = size
        elif size <= _PAGE or not self.held_edges:
            self._join(start, size)
        else:
            self._join(start, size - _EDGE)
            self._edges.append(start + size - _EDGE)
            if len(self._edges) > self.held_edges:
                self._join(self._edges.popleft(), _EDGE)

    def _join(self, start: int, size: int) -> None:
        """Join a hole with its neighbours. A hole at the end of the heap is removed, and a large end returned."""
        if start in self._start_before:
            before = self._start_before[start]
            size += self._fill(before)
            start = before
        if start + size in self._size_at:
            size += self._fill(start + size)
        if start + size == self._top:
            self._top = start
        else:
            self._open(start, size)
        if self._end - self._top >= 2 * self._threshold:
            self._end = _rounded(self._top + _TOP_PAD, _PAGE)

    def _open(self, start: int, size: int) -> None:
        self._size_at[start] = size
        self._start_before[start + size] = start
        insort(self._holes, (size, start))

    def _fill(self, start: int) -> int:
        size = self._size_at.pop(start)
        del self._start_before[start + size]
        del self._holes[bisect_left(self._holes, (size, start))]
        return size


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
