"""Simulates the C library's heap: memory that stays resident after tensors are freed.

glibc 2.26 and later, one thread (malloc/malloc.c; names of its parts as there). A block of at least the mmap threshold
is a mapping of its own if no hole fits; freed, it returns to the system and raises the threshold to its size, up to
32 MiB. Other blocks share one heap: the smallest hole that fits serves a block, otherwise the heap grows. The heap
shrinks only at its end.

torch asks for blocks aligned to 64 bytes. `posix_memalign` takes 112 bytes more than the block and frees the edges.
Small freed pieces stay in caches (tcache, fast bins) and do not join their neighbours, so a hole can be a few bytes too
small for the next block of the same size, and the heap grows although enough of it is free. Which pieces are held
depends on every small object, so the peak of the same run differs between processes, by a fifth for some models.
`seed` stands for what a process did before.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from xfcost.torch_models.memory.holes import Holes

_PAGE: Final = 4096
_GRAIN: Final = 16
_HEADER: Final = 8
_ALIGNMENT: Final = 64
_LEAST: Final = 32  # the smallest chunk
_CACHED: Final = 1040  # the largest chunk in the thread's cache
_CACHE_DEPTH: Final = 7
_FAST: Final = 128  # the largest chunk in a fast bin
_LARGE: Final = 1024  # requests from here up empty the fast bins
_CONSOLIDATING: Final = 64 * 1024  # a freed hole from here up empties them as well
# Reading torch's files has raised the threshold from 128 KiB: between 1.18 and 1.60 MB measured.
_FIRST_THRESHOLD: Final = 1280 * 1024
_LAST_THRESHOLD: Final = 32 * 2**20
_TOP_PAD: Final = 128 * 1024
# Small objects that live when a run starts, and the share of them that is freed.
_OLD_OBJECTS: Final = 600
_FREED: Final = 0.5


class Heap:
    """Takes and frees blocks; `resident` bytes now, their `peak`, and all bytes `obtained` from the system so far."""

    def __init__(self, seed: int = 0) -> None:
        self.peak = 0
        self.obtained = 0
        self._threshold = _FIRST_THRESHOLD
        self._mapped: dict[int, int] = {}
        self._mappings = 0
        self._bytes_mapped = 0
        self._top = 0  # the heap is free from this address to its end
        self._end = 0
        self._holes = Holes()
        self._used: dict[int, int] = {}  # start -> size
        self._cache: dict[int, list[int]] = {}
        self._fast: deque[tuple[int, int]] = deque()
        random = Random(seed)  # noqa: S311 - no secret
        old = [self.take_object(round(2 ** random.uniform(3, 9))) for _ in range(_OLD_OBJECTS if seed else 0)]
        for block in old:
            if random.random() < _FREED:
                self.give(block)

    @property
    def resident(self) -> int:
        """Bytes of mappings, and of the heap up to its end."""
        return self._bytes_mapped + self._end

    def take(self, requested: int) -> int:
        """Take a block aligned to 64 bytes, as tensors have; returns its address, negative for a mapping."""
        size = _chunk(requested)
        found = self._find(_chunk(size + _ALIGNMENT + _LEAST))
        if found is None:
            return self._map(requested)
        start, whole = found
        before = (_ALIGNMENT - 2 * _HEADER - start) % _ALIGNMENT
        if before:
            before += _ALIGNMENT if before < _LEAST else 0
            self._free(start, before)
        start, whole = start + before, whole - before
        if whole > size + _LEAST:
            self._free(start + size, whole - size)
            whole = size
        return self._taken(start, whole)

    def take_object(self, requested: int) -> int:
        """Take a block without alignment, as small objects have."""
        size = _chunk(requested)
        if cached := self._cache.get(size):
            return self._taken(cached.pop(), size)
        found = self._find(size)
        return self._map(requested) if found is None else self._taken(*found)

    def give(self, block: int) -> None:
        """Free a block: a mapping goes to the system, other blocks to the heap."""
        if block >= 0:
            self._free(block, self._used.pop(block))
            return
        size = self._mapped.pop(block)
        self._bytes_mapped -= size
        if self._threshold < size <= _LAST_THRESHOLD:
            self._threshold = size

    def _taken(self, start: int, size: int) -> int:
        self._used[start] = size
        self.peak = max(self.peak, self.resident)
        return start

    def _map(self, requested: int) -> int:
        size = _rounded(_chunk(requested) + _ALIGNMENT + _LEAST + _HEADER, _PAGE)
        self._mappings += 1
        self._mapped[-self._mappings] = size
        self._bytes_mapped += size
        self.obtained += size
        self.peak = max(self.peak, self.resident)
        return -self._mappings

    def _find(self, size: int) -> tuple[int, int] | None:
        """The start and size of a chunk of at least `size`; None where a mapping is to be taken."""
        if size <= _FAST:
            for index, (start, held) in enumerate(self._fast):
                if held == size:
                    del self._fast[index]
                    return start, size
        elif size >= _LARGE:
            self._join_fast()
        while (hole := self._holes.fitting(size)) is None and self._end - self._top < size + _LEAST and self._fast:
            self._join_fast()
        if hole is not None:
            start, whole = hole
            if whole - size < _LEAST:
                return hole
            self._holes.open(start + size, whole - size)
            return start, size
        if self._end - self._top < size + _LEAST:
            if size >= self._threshold:
                return None
            end = _rounded(self._top + size + _TOP_PAD + _LEAST, _PAGE)
            self.obtained += end - self._end
            self._end = end
        start = self._top
        self._top += size
        return start, size

    def _free(self, start: int, size: int) -> None:
        if size <= _CACHED and len(cached := self._cache.setdefault(size, [])) < _CACHE_DEPTH:
            cached.append(start)
        elif size <= _FAST:
            self._fast.appendleft((start, size))
        elif self._join(start, size) >= _CONSOLIDATING:
            self._join_fast()
            if self._end - self._top >= 2 * self._threshold:
                self._end = _rounded(self._top + _TOP_PAD, _PAGE)

    def _join_fast(self) -> None:
        while self._fast:
            self._join(*self._fast.popleft())

    def _join(self, start: int, size: int) -> int:
        """Join a hole with its neighbours, or with the free end of the heap; returns its size."""
        start, size = self._holes.joined(start, size)
        if start + size == self._top:
            self._top = start
            return self._end - start
        self._holes.open(start, size)
        return size


def _chunk(requested: int) -> int:
    return max(_LEAST, _rounded(requested + _HEADER, _GRAIN))


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
