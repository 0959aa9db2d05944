"""What a run does with memory: what it makes, frees, reads, writes and saves. Imports no torch.

A tape fills a record without numbers, the recorder from a running model; its sums do not know which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple


class SavedStorage(NamedTuple):
    """Memory that autograd saves for the backward pass."""

    storage: int | None
    """Its number; None where a few steps of a loop stand for many."""
    nbytes: int
    module: str
    """What runs: a module of a torch model, the row of a program's leaf."""
    newest_node: int = 0
    """The node that saves it: the one that was made last."""
    is_mask: bool = False
    """Is it a mask, the same for all samples and heads?"""
    times: int = 1
    """For how many blocks it stands."""


@dataclass(slots=True)
class Record:
    """The memory of one run."""

    saved: list[SavedStorage] = field(default_factory=list)
    weights: set[int | None] = field(default_factory=set)
    """Storages of parameters and buffers."""
    changes: list[tuple[int, int]] = field(default_factory=list)
    """Storages and their bytes, in the order in which they were made and, with bytes below 0, freed."""
    operands: Counter[str] = field(default_factory=Counter)
    """Bytes of the tensors that enter and leave each leaf, each once in a call: those that a tape has run."""

    def peak_bytes(self) -> int:
        """The most bytes of live storages at once."""
        return max(accumulate(nbytes for _, nbytes in self.changes), default=0)

    def first_saved(self) -> Iterator[SavedStorage]:
        """What is saved, each storage where it is saved first; parameters and buffers left out."""
        seen = set(self.weights)
        for one in self.saved:
            if one.storage is None or one.storage not in seen:
                yield one
            if one.storage is not None:
                seen.add(one.storage)

    def add(self, other: Record, times: int, *, saves: bool = True) -> None:
        """What `other` has recorded, so many `times`, without its changes; not what it `saves` where that is undone."""
        self.saved += [one._replace(times=one.times * times) for one in other.saved if saves]
        for module, nbytes in other.operands.items():
            self.operands[module] += nbytes * times

    def saved_by_module(self) -> Counter[str]:
        """Bytes that each module is the first to save."""
        return _by_module(self.first_saved())

    def masks_by_module(self) -> Counter[str]:
        """Those of them that are masks, the same for all samples and heads."""
        return _by_module(one for one in self.first_saved() if one.is_mask)


def _by_module(saved: Iterable[SavedStorage]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in saved:
        found[one.module] += one.nbytes * one.times
    return found
