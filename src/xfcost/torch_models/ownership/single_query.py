"""One query for all tokens of a sample, as in a decoder's loop: told from a summary by a softmax over the tokens.

A vector that meets every token may be what they read (a gate, a [CLS] token), or a query that scores them. The
results are followed; if a softmax normalises them over the tokens, they were scores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from xfcost.torch_models.ownership.owners import distinct_pairs
from xfcost.torch_models.ownership.places import Places


class Query(NamedTuple):
    """The place that all tokens of each sample met, and the operations since."""

    of_sample: dict[int, int]
    operations: frozenset[int]
    """Those in which they met."""


class Queries:
    """The possible single queries behind the tensors of a run."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._behind: Any = WeakTensorKeyDictionary()
        self._met: dict[int, int] = {}

    def meet(self, homes: Tensor, read: Tensor) -> None:
        """Each of `homes` met the place of `read` beside it, in the running operation."""
        known = (homes >= 0) & (read >= 0)
        pairs = distinct_pairs(homes[known], read[known]).T.tolist()
        found: dict[int, set[int]] = {}
        tokens: dict[int, set[int]] = {}
        for place, other in pairs:
            sample = self._places.samples[place]
            found.setdefault(sample, set()).add(other)
            tokens.setdefault(sample, set()).add(place)
        if all(len(found[sample]) == 1 < len(tokens[sample]) for sample in found):
            self._met = {sample: min(others) for sample, others in found.items()}

    def follow(self, sequence: int, given: list[Tensor], results: list[Tensor], *, mixes: bool) -> None:
        """After an operation: its results may be scores if they met one query, or are made of what may be."""
        behind = [query for value in given if (query := self._behind.get(value)) is not None]
        found = Query(self._met, frozenset((sequence,))) if self._met else None
        if behind and not mixes:
            found = behind[0]
        self._met = {}
        for result in results:
            if found is not None and result.is_floating_point():
                self._behind[result] = found

    def of(self, tensor: Tensor, homes: Tensor) -> Tensor | None:
        """The query of each of `homes`, if all have one."""
        query = self._behind.get(tensor)
        if query is None:
            return None
        table = [query.of_sample.get(sample, -1) for sample in self._places.samples]
        found = torch.tensor([*table, -1])[homes.clamp(min=-1)]
        return found if bool((found >= 0)[homes >= 0].all()) else None

    def operations(self, tensor: Tensor) -> frozenset[int]:
        """Where the tokens behind `tensor` met the query."""
        query = self._behind.get(tensor)
        return frozenset() if query is None else query.operations
