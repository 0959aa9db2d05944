"""What every number of a running module stands for, followed from one operation to the next by its value.

Between two operations numbers are only moved (viewed, transposed, gathered), so that equal values are the same number:
random float64 values are all different. So no layout of windows, heads or chunks needs to be known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from torch import Tensor

# The label of numbers that no place stands behind: parameters, paddings, masks.
UNKNOWN: Final = -1
# The place of such numbers.
NO_PLACE: Final = -1


class Label(NamedTuple):
    """What a number stands for. Places are tokens, or summaries of them: landmarks, pooled keys, states."""

    home: int
    """The place whose vector, or whose row of weights, it is part of."""
    content: int
    """The place that it tells of: `home` itself in a vector, the key in a row of weights."""
    position: bool = False
    """Is it a weight that is there for a key by its position, and tells nothing of it?"""


class Places:
    """All places of one run, and the tokens that each stands for. The first ones are the tokens themselves."""

    def __init__(self, tokens: int) -> None:
        self.tokens = [frozenset((token,)) for token in range(tokens)]

    def add(self, tokens: frozenset[int]) -> int:
        """A new place that stands for `tokens`."""
        self.tokens.append(tokens)
        return len(self.tokens) - 1

    def grow(self, place: int, tokens: frozenset[int]) -> None:
        """From now on, a summary stands for `tokens` too."""
        self.tokens[place] |= tokens

    def told(self, places: frozenset[int]) -> frozenset[int]:
        """The tokens that `places` stand for."""
        return frozenset[int]().union(*(self.tokens[place] for place in places))


class _Made(NamedTuple):
    maker: str
    values: np.ndarray
    """In ascending order."""
    labels: np.ndarray


class Known:
    """All labelled numbers of one run, found by their value."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self._numbers: dict[Label, int] = {}
        self._made: list[_Made] = []

    def number(self, label: Label) -> int:
        """The number by which `label` is written down."""
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    def remember(self, maker: str, values: Tensor, labels: np.ndarray) -> None:
        """`values` were made by the operation `maker`; `labels`, of the same shape, say what they stand for."""
        flat = values.detach().flatten().numpy()
        order = np.argsort(flat, kind="stable")
        self._made.append(_Made(maker, flat[order], labels.ravel()[order]))

    def look_up(self, values: Tensor) -> tuple[np.ndarray, frozenset[str]]:
        """The labels of `values`, in their shape, UNKNOWN where there is none; and who made them."""
        flat = values.detach().contiguous().flatten().numpy()
        found = np.full(flat.shape, UNKNOWN)
        makers = set()
        wanted = np.flatnonzero(np.isfinite(flat) & (flat != 0))
        for made in reversed(self._made):
            if not wanted.size:
                break
            at = np.searchsorted(made.values, flat[wanted])
            hit = made.values[np.minimum(at, made.values.size - 1)] == flat[wanted] if made.values.size else at < 0
            if hit.any():
                found[wanted[hit]] = made.labels[at[hit]]
                makers.add(made.maker)
            wanted = wanted[~hit]
        return found.reshape(values.shape), frozenset(makers)
