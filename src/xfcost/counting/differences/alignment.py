"""The operations of two runs side by side.

Paths form a tree (`stages.2.pattern.0.0.qkv`). Names are matched by name. Numbers count blocks, and an inserted block
moves all that follow it: so numbered siblings are matched by what is inside them, in their order, and as alike as can
be in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from xfcost.ledger.saved_report import ReportOperation

Pair = tuple[ReportOperation | None, ReportOperation | None]

# Parts of the likeness of two branches: rows with equal figures, rows of the same name, as many blocks.
_FIGURES, _NAMES, _TIMES = 0.55, 0.4, 0.05
# Branches that have fewer names in common are different ones.
_LEAST_NAMES = 0.5


class Branch:
    """A part of the tree: its own row, if it is an operation, and its children."""

    def __init__(self) -> None:
        self.row: ReportOperation | None = None
        self.children: dict[str, Branch] = {}

    @property
    def rows(self) -> Iterator[ReportOperation]:
        """All rows inside, in order."""
        if self.row is not None:
            yield self.row
        for child in self.children.values():
            yield from child.rows

    @cached_property
    def inside(self) -> Inside:
        """What is inside it."""
        return _inside(self)


class Inside(NamedTuple):
    """The rows of a branch, for the comparison with another."""

    figures: Counter[Any]
    """Names and figures of one block."""
    names: Counter[Any]
    times: tuple[int, ...]


def _inside(branch: Branch) -> Inside:
    rows, figures, names = list(branch.rows), Counter[Any](), Counter[Any]()
    for row in rows:
        last = row.path.rpartition(".")[2]
        figures[last, row.title, row.mixing, row.params, row.macs, row.flops, row.matrix_kept, row.cached] += 1
        names[last, row.title] += 1
    return Inside(figures, names, tuple(row.times for row in rows))


def _tree(rows: Sequence[ReportOperation]) -> Branch:
    root = Branch()
    for row in rows:
        branch = root
        for part in row.path.split("."):
            branch = branch.children.setdefault(part, Branch())
        while branch.row is not None:  # the same path again: the next of its name
            branch = branch.children.setdefault("again", Branch())
        branch.row = row
    return root


def aligned(before: Sequence[ReportOperation], after: Sequence[ReportOperation]) -> list[Pair]:
    """Every operation of either run, beside the same one of the other; None beside one that only one of them has."""
    return list(_aligned(_tree(before), _tree(after)))


def _aligned(first: Branch, second: Branch) -> Iterator[Pair]:
    if first.row is not None or second.row is not None:
        yield first.row, second.row
    for one, other in _siblings(first.children, second.children):
        if one is None or other is None:
            yield from ((row, None) for row in (one.rows if one else ()))
            yield from ((None, row) for row in (other.rows if other else ()))
        else:
            yield from _aligned(one, other)


def _siblings(first: dict[str, Branch], second: dict[str, Branch]) -> Iterator[tuple[Branch | None, Branch | None]]:
    """Children side by side: those with the same name, and the others by what is inside them."""
    same = [name for name in second if name in first and not _numbered(name)]
    left = [branch for name, branch in first.items() if name not in same]
    right = [(name, branch) for name, branch in second.items() if name not in same]
    partners = dict(_in_order(left, [branch for _, branch in right]))
    alone = set(range(len(left))) - set(partners.values())
    place = 0
    for name, branch in second.items():
        if name in same:
            yield first[name], branch
            continue
        partner = partners.get(place)
        for removed in sorted(alone):
            if partner is not None and removed < partner:
                alone.discard(removed)
                yield left[removed], None
        yield (None if partner is None else left[partner]), branch
        place += 1
    for removed in sorted(alone):
        yield left[removed], None


def _numbered(name: str) -> bool:
    """Is it a block's number: `3`, `1-4`, or `*` of a module's repeated blocks?"""
    return name[:1].isdigit() or name == "*"


def _in_order(first: Sequence[Branch], second: Sequence[Branch]) -> Iterator[tuple[int, int]]:
    """(place in `second`, place in `first`) of branches that belong together, both in order, the likest in all."""
    start, end = 0, min(len(first), len(second))
    while start < end and first[start].inside == second[start].inside:
        yield start, start
        start += 1
    tail = 0
    while tail < end - start and first[-1 - tail].inside == second[-1 - tail].inside:
        tail += 1
        yield len(second) - tail, len(first) - tail
    left, right = first[start : len(first) - tail], second[start : len(second) - tail]
    yield from ((start + theirs, start + ours) for theirs, ours in _best(left, right))


def _best(first: Sequence[Branch], second: Sequence[Branch]) -> Iterator[tuple[int, int]]:
    likeness = [[_likeness(one.inside, other.inside) for other in second] for one in first]
    best = [[0.0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in reversed(range(len(first))):
        for j in reversed(range(len(second))):
            both = best[i + 1][j + 1] + likeness[i][j] if likeness[i][j] else 0.0
            best[i][j] = max(both, best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < len(first) and j < len(second):
        if likeness[i][j] and best[i][j] == best[i + 1][j + 1] + likeness[i][j]:
            yield j, i
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1


def _likeness(one: Inside, other: Inside) -> float:
    """From 0, nothing in common, to 1, the same."""
    names = _share(one.names, other.names)
    if names < _LEAST_NAMES:
        return 0.0
    return _FIGURES * _share(one.figures, other.figures) + _NAMES * names + _TIMES * (one.times == other.times)


def _share(one: Counter[Any], other: Counter[Any]) -> float:
    """Twice what both have over what each has (Dice's coefficient)."""
    if one == other:
        return 1.0
    return 2 * (one & other).total() / (one.total() + other.total())
