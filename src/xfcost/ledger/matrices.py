"""Attention matrices: what an operation gives of them, how many are alive at once, what training keeps; in bytes.

An attention matrix has one number for every head, query and key, and is worked out of the tokens: scores by content or
by position, scores with a bias or a mask, weights after the softmax. A fused kernel makes none, and gives one
log-sum-exp per head and query instead. What is the same for every sample (a table of biases or decays) is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from xfcost.ledger.number import Number

# Bytes of a log-sum-exp, whatever the dtype; those of the dtype where it is wider.
_STATISTIC: Final = 4


class Matrix(NamedTuple):
    """What one operation adds to the attention matrices, in entries of the model's dtype."""

    entries: Number
    """Heads × queries × keys that it gives; 0 of a fused kernel."""
    alive: Number
    """Entries that are alive at once when it has run: its own, those that it read, those that are read later."""
    kept: Number = 0
    """How many of its own autograd keeps for the backward pass."""
    statistics: Number = 0
    """Log-sum-exps of a fused kernel, float32 or wider; alive while it runs, and kept."""

    def batched(self, batch: int) -> Matrix:
        """The same for `batch` samples."""
        return Matrix(*(quantity * batch for quantity in self))

    def alive_bytes(self, element: int) -> int:
        """Bytes that are alive at once, where an element of the dtype has so many."""
        return int(self.alive * element + self.statistics * max(_STATISTIC, element))

    def kept_bytes(self, element: int) -> int:
        """Bytes that training keeps."""
        return int(self.kept * element + self.statistics * max(_STATISTIC, element))


def matrix(entries: Number, beside: Number = 0, *, kept: bool = False) -> Matrix:
    """Of an operation that gives a matrix of `entries` while others with `beside` entries are alive."""
    return Matrix(entries, entries + beside, entries if kept else 0)


class AttentionMemory(NamedTuple):
    """Bytes of attention matrices, of the whole batch but for `per_head`."""

    per_head: int
    """The largest matrix of one head of one sample (fused: its statistics)."""
    per_layer: int
    """What training keeps of the layer that keeps most."""
    all_layers: int
    """What training keeps of all layers."""
    peak: int
    """What inference needs: most that are alive at once, scores and their softmax, say."""


class Held(NamedTuple):
    """The matrix of one row of a ledger."""

    matrix: Matrix
    layer: str
    times: int
    """How often the row's block stands."""
    heads: int
    """Of all samples."""


def attention_memory(held: Iterable[Held], element: int) -> AttentionMemory:
    """The memory of these matrices, where an element of the dtype has `element` bytes."""
    layers: dict[str, int] = {}
    per_head = all_layers = peak = 0
    for matrix_, layer, times, heads in held:
        kept, own = matrix_.kept_bytes(element), matrix_._replace(alive=matrix_.entries)
        layers[layer] = layers.get(layer, 0) + kept
        all_layers += kept * times
        peak = max(peak, matrix_.alive_bytes(element))
        per_head = max(per_head, own.alive_bytes(element) // heads)
    return AttentionMemory(per_head, max(layers.values(), default=0), all_layers, peak)
