"""What torch's allocator on CUDA reserves from the driver, for tensors that are made and freed in a known order.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp` in torch 2.11, with its default settings. Tensors up to 1 MiB
have segments of their own. A tensor takes the smallest free block that holds it; if none does, a new segment is
reserved. What is left of a block is split off. A freed block is merged with the free ones beside it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import chain, count, repeat
from typing import Final

_MIB: Final = 2**20
# Sizes are multiples of this.
_UNIT: Final = 512
_SMALL: Final = _MIB
_ROUND: Final = 2 * _MIB
# Tensors below the first size share segments of the second. Larger ones get their own, a multiple of `_ROUND`.
_OWN: Final = 10 * _MIB
_SHARED: Final = 20 * _MIB
# Between the addresses of two segments, so that no block is beside one of another segment.
_GAP: Final = 2**50
# Nearly all models reserve nothing more in later calls.
_CALLS: Final = 4


class CachingAllocator:
    """Gives out blocks of segments, and returns no segment to the driver."""

    def __init__(self) -> None:
        self.reserved = 0
        """Bytes of all segments."""
        self._segments = count(0, _GAP)
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        """Of small tensors or of large ones: (size, start) of free blocks, in order."""
        self._end_of, self._start_of = dict[int, int](), dict[int, int]()
        """Of a free block that starts, or ends, there."""
        self._taken: dict[int, tuple[bool, int, int]] = {}
        """Storage -> is it small, start and end of its block."""

    def make(self, storage: int, nbytes: int) -> None:
        """Give a storage its block."""
        size, small = -(-nbytes // _UNIT) * _UNIT, nbytes <= _SMALL
        blocks = self._free[small]
        place = bisect_left(blocks, (size,))
        if place < len(blocks):
            start = blocks[place][1]
            end = self._take(small, start)
        else:
            segment = _ROUND if small else _SHARED if size < _OWN else -(-size // _ROUND) * _ROUND
            self.reserved += segment
            start = next(self._segments)
            end = start + segment
        if end - start - size >= (_UNIT if small else _SMALL + 1):
            self._add(small, start + size, end)
            end = start + size
        self._taken[storage] = small, start, end

    def free(self, storage: int) -> None:
        """Take its block back, if it has one."""
        if storage not in self._taken:
            return
        small, start, end = self._taken.pop(storage)
        if start in self._start_of:
            start = self._start_of[start]
            self._take(small, start)
        if end in self._end_of:
            end = self._take(small, end)
        self._add(small, start, end)

    def _add(self, small: bool, start: int, end: int) -> None:
        insort(self._free[small], (end - start, start))
        self._end_of[start], self._start_of[end] = end, start

    def _take(self, small: bool, start: int) -> int:
        """Remove a free block; its end."""
        end = self._end_of.pop(start)
        del self._start_of[end]
        blocks = self._free[small]
        del blocks[bisect_left(blocks, (end - start, start))]
        return end


def reserved_bytes(before: Sequence[tuple[int, int]], call: Sequence[tuple[int, int]]) -> int:
    """Bytes of all segments after several calls, which split the blocks of those before them otherwise.

    A change is a storage and its bytes: it is made, or, with bytes below 0, freed. What a call leaves, such as a new
    state in a buffer, is freed before the next call makes it again.
    """
    allocator = CachingAllocator()
    for storage, nbytes in chain(before, *repeat(call, _CALLS)):
        allocator.free(storage)
        if nbytes > 0:
            allocator.make(storage, nbytes)
    return allocator.reserved
