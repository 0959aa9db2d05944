"""Labels each number of a running module, and follows it by its value from operation to operation.

Between operations numbers are only moved (viewed, transposed, gathered). Random float64 values all differ, so an equal
value is the same number. The layout of windows, heads or chunks need not be known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from torch import Tensor

# The label of numbers without a place: parameters, padding, masks.
UNKNOWN: Final = -1
# The place of such numbers.
NO_PLACE: Final = -1


class Label(NamedTuple):
    """The meaning of a number. Places are tokens, or summaries of them: landmarks, pooled keys, states."""

    home: int
    """The place of its vector, or of its row of weights."""
    content: int
    """The place of its content: `home` itself in a vector, the key in a row of weights."""
    position: bool = False
    """Is it a weight by position, independent of the key's content?"""


class Places:
    """All places of one run, and the tokens that each represents. The first places are the tokens themselves."""

    def __init__(self, tokens: int) -> None:
        self.tokens = [frozenset((token,)) for token in range(tokens)]

    def add(self, tokens: frozenset[int]) -> int:
        """A new place that represents `tokens`."""
        self.tokens.append(tokens)
        return len(self.tokens) - 1

    def grow(self, place: int, tokens: frozenset[int]) -> None:
        """Add `tokens` to those of a summary."""
        self.tokens[place] |= tokens

    def represented(self, places: frozenset[int]) -> frozenset[int]:
        """The tokens that `places` represent."""
        return frozenset[int]().union(*(self.tokens[place] for place in places))


class _Stored(NamedTuple):
    maker: str
    values: np.ndarray
    """In ascending order."""
    labels: np.ndarray


class LabelledValues:
    """All labelled numbers of one run, indexed by value."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self._numbers: dict[Label, int] = {}
        self._stored: list[_Stored] = []

    def number(self, label: Label) -> int:
        """The index of `label`."""
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    def remember(self, maker: str, values: Tensor, labels: np.ndarray) -> None:
        """Store that the operation `maker` made `values`, with `labels` of the same shape."""
        flat = values.detach().flatten().numpy()
        order = np.argsort(flat, kind="stable")
        self._stored.append(_Stored(maker, flat[order], labels.ravel()[order]))

    def look_up(self, values: Tensor) -> tuple[np.ndarray, frozenset[str]]:
        """The labels of `values`, in their shape, UNKNOWN by default; and the operations that made them."""
        flat = values.detach().contiguous().flatten().numpy()
        found = np.full(flat.shape, UNKNOWN)
        makers = set()
        wanted = np.flatnonzero(np.isfinite(flat) & (flat != 0))
        for made in reversed(self._stored):
            if not wanted.size:
                break
            slot = np.searchsorted(made.values, flat[wanted])
            hit = made.values[np.minimum(slot, made.values.size - 1)] == flat[wanted] if made.values.size else slot < 0
            if hit.any():
                found[wanted[hit]] = made.labels[slot[hit]]
                makers.add(made.maker)
            wanted = wanted[~hit]
        return found.reshape(values.shape), frozenset(makers)
