"""Columns of boxes laid side by side, so that boxes of one slot meet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfcost.counting.boxes import Box


def aligned(columns: Sequence[Sequence[Box]]) -> list[tuple[Box | None, ...]]:
    """Rows of boxes: each further column is laid along those before it, slot by slot."""
    rows: list[list[Box | None]] = [[box] for box in columns[0]]
    for number, boxes in enumerate(columns[1:], start=1):
        slots = [next(box.slot for box in row if box) for row in rows]
        merged: list[list[Box | None]] = []
        for above, below in _pairs(slots, [box.slot for box in boxes]):
            before = rows[above] if above is not None else [None] * number
            merged.append([*before, boxes[below] if below is not None else None])
        rows = merged
    return [tuple(row) for row in rows]


def _pairs(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Indices of equal items side by side, as many as can be and as early as can be; None beside an item alone."""
    common = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in reversed(range(len(first))):
        for j in reversed(range(len(second))):
            equal = first[i] == second[j]
            common[i][j] = 1 + common[i + 1][j + 1] if equal else max(common[i + 1][j], common[i][j + 1])
    i = j = 0
    while i < len(first) or j < len(second):
        if i < len(first) and j < len(second) and first[i] == second[j]:
            yield i, j
            i, j = i + 1, j + 1
        elif j == len(second) or (i < len(first) and common[i + 1][j] >= common[i][j + 1]):
            yield i, None
            i += 1
        else:
            yield None, j
            j += 1
