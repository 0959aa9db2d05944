"""Who reads whom: for each output of a layer the inputs that it reads, as arithmetic runs in numpy arrays."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

# Up to so many outputs equal sets are found wherever they stand; beyond, where they follow one another.
_MOST_COMPARED: Final = 2**17
# Places at equal distances that are kept as one run.
_LEAST_IN_RUN: Final = 4


class Relation(NamedTuple):
    """The distinct sets of inputs that outputs read. Run r has `first[r] + i·step[r]` for i < `length[r]`."""

    which: np.ndarray
    """Of each output, the number of its set."""
    sets: int
    owner: np.ndarray
    """Of each run, the number of its set, ascending."""
    first: np.ndarray
    length: np.ndarray
    step: np.ndarray

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return len(self.which)

    @property
    def last(self) -> np.ndarray:
        """The last input of each run."""
        last: np.ndarray = self.first + (self.length - 1) * self.step
        return last


def relation_of(reads: Iterable[Sequence[int]]) -> Relation:
    """The relation of outputs that read these inputs, one after the other."""
    which = array("q")
    runs = array("q")
    found: dict[Hashable, int] = {}
    before: Sequence[int] | None = None
    sets = 0
    for read in reads:
        if before is not None and read == before:
            which.append(which[-1])
            continue
        before = read
        key = tuple(_runs(read))
        number = found.get(key)
        if number is None:
            number, sets = sets, sets + 1
            for run in key:
                runs.extend((number, *run))
            if len(which) < _MOST_COMPARED:
                found[key] = number
        which.append(number)
    table = np.array(runs).reshape(-1, 4)
    return Relation(np.array(which), sets, *(np.ascontiguousarray(column) for column in table.T))


def _runs(read: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, count, step) of the runs of which a set consists."""
    if isinstance(read, range):
        return [(read.start, len(read), read.step if len(read) > 1 else 1)] if len(read) else []
    if len(read) and read[-1] - read[0] == len(read) - 1 and read == list(range(read[0], read[-1] + 1)):
        return [(read[0], len(read), 1)]
    places = np.asarray(read, dtype=np.int64)
    if not len(places):
        return []
    steps = np.diff(places)
    if not (steps > 0).all():
        places = np.unique(places)
        steps = np.diff(places)
    ends = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
    runs, covered = [], 0
    for start, end in pairwise(ends):
        step, count = int(steps[start]) if len(steps) else 1, end - start + 1
        if count >= _LEAST_IN_RUN or (step == 1 and count > 1) or count == len(places):
            runs.append((int(places[start]), count, step))
        else:
            runs += [(int(place), 1, 1) for place in places[max(start, covered) : end + 1]]
        covered = end + 1
    return runs
