"""The holes of a heap by address and by size."""

from __future__ import annotations

from bisect import bisect_left, insort


class Holes:
    """Holes between blocks: the smallest that fits is found by size, neighbours by address."""

    def __init__(self) -> None:
        self._sorted: list[tuple[int, int]] = []  # (size, start)
        self._size_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}

    def open(self, start: int, size: int) -> None:
        """Add a hole."""
        self._size_at[start] = size
        self._start_before[start + size] = start
        insort(self._sorted, (size, start))

    def fitting(self, size: int) -> tuple[int, int] | None:
        """Take out the smallest hole of at least `size`: its start and its size; None if there is none."""
        found = bisect_left(self._sorted, (size, 0))
        if found == len(self._sorted):
            return None
        start = self._sorted[found][1]
        return start, self._fill(start)

    def joined(self, start: int, size: int) -> tuple[int, int]:
        """Take out the neighbours of a freed block: the start and the size of all of it."""
        if start in self._start_before:
            start = self._start_before[start]
            size += self._fill(start)
        if start + size in self._size_at:
            size += self._fill(start + size)
        return start, size

    def _fill(self, start: int) -> int:
        size = self._size_at.pop(start)
        del self._start_before[start + size]
        del self._sorted[bisect_left(self._sorted, (size, start))]
        return size
