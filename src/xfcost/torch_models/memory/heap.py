"""The heap of the C library as the CPU's tensors use it, simulated: what stays resident beside what is alive.

glibc 2.26 and later (malloc/malloc.c). A block from the mmap threshold up is a mapping of its own and goes back to the
system when it is freed; every such free raises the threshold to the block's size, up to 32 MiB. Smaller blocks share
one heap: the smallest hole that is large enough serves a block, else the heap grows; it shrinks at its end alone.

torch asks for blocks at multiples of 64 bytes. `posix_memalign` looks for more than the block and frees what is left at
its edges, and the thread's cache of small blocks holds such edges for a while. A hole whose edge is held is a little
too small for the next block of the same size, so that the heap grows though enough of it is free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Final

_PAGE: Final = 4096
_GRAIN: Final = 16
# What posix_memalign adds to a block: its header, the alignment and the smallest block.
_EDGE: Final = 16 + 64 + 32
_FIRST_THRESHOLD: Final = 128 * 1024
_LAST_THRESHOLD: Final = 32 * 2**20
_TOP_PAD: Final = 128 * 1024


class Heap:
    """Takes blocks and gives them back; `resident` bytes now and their `peak`.

    `held_edges`: how many edges of freed blocks the thread's cache holds at a time; 0 is a heap that joins all holes.
    """

    def __init__(self, held_edges: int = 0) -> None:
        self.held_edges = held_edges
        self.peak = 0
        self._threshold = _FIRST_THRESHOLD
        self._mapped = 0
        self._top = 0  # from here to the end nothing of the heap is in use
        self._end = 0
        self._holes: list[tuple[int, int]] = []  # (size, start), sorted
        self._size_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}
        self._edges: deque[int] = deque()

    @property
    def resident(self) -> int:
        """Bytes of mappings and of the heap up to its end."""
        return self._mapped + self._end

    def take(self, asked: int) -> tuple[int, int]:
        """A block of `asked` bytes: its start (-1 where it is a mapping) and its size, as `give` wants them."""
        size = _rounded(asked + _EDGE, _GRAIN)
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
        """A block back: to the system, or to the heap."""
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
        """A hole, joined with those beside it; at the heap's end it is no hole, and a large end is given back."""
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
