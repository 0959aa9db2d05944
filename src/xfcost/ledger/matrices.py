"""Attention cores, and attention matrices: sizes, how many are alive at once, which are saved for the backward pass.

An attention matrix has one number for every head, query and key, and depends on the tokens: content or position scores,
scores with a bias or a mask, weights after the softmax. A fused kernel returns one log-sum-exp per head and query
instead. A tensor that is the same for all samples (a table of biases or decays) is no attention matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from xfcost.ledger.units import Number


class AttentionCore(msgspec.Struct, frozen=True):
    """softmax(QKᵀ)V, run `times` times."""

    times: Number
    """Heads × groups × samples."""
    queries: Number
    keys: Number
    width: Number
    """d_k, of queries and keys."""
    value_width: Number = None
    """d_v, of values and outputs; d_k if None."""

    @property
    def key_value_width(self) -> Number:
        """d_k + d_v, of a key with its value or a query with its output."""
        return self.width + self.values

    @property
    def values(self) -> Number:
        """d_v."""
        return self.width if self.value_width is None else self.value_width

    @property
    def least_on_chip(self) -> Number:
        """The smallest on-chip memory, in elements, that holds a tile of one key: M/4d must be at least 1."""
        return 2 * self.key_value_width


# Bytes of a log-sum-exp; those of the dtype if it is wider.
_STATISTIC: Final = 4


class Matrix(NamedTuple):
    """The attention matrix of one operation, in entries of the model's dtype."""

    entries: Number
    """Heads × queries × keys of its output; 0 for a fused kernel."""
    alive: Number
    """Entries alive after it ran: its output, its inputs, and matrices that later operations read."""
    saved: Number = 0
    """Entries of its output that autograd saves for the backward pass."""
    statistics: Number = 0
    """Log-sum-exps of a fused kernel, float32 or wider; alive while it runs, and saved."""

    def joined(self, other: Matrix) -> Matrix:
        """This one and another that the same operation makes, one after the other."""
        sums = (own + more for own, more in zip(self, other, strict=True))
        return Matrix(*sums)._replace(alive=max(self.alive, other.alive))

    def batched(self, batch: int) -> Matrix:
        """The matrix of `batch` samples."""
        return Matrix(*(quantity * batch for quantity in self))

    def alive_bytes(self, element: int) -> int:
        """Bytes alive at once; `element` is the size of the dtype."""
        return int(self.alive * element + self.statistics * max(_STATISTIC, element))

    def kept_bytes(self, element: int) -> int:
        """Bytes saved for the backward pass."""
        return int(self.kept(element))

    def kept(self, element: int) -> Number:
        """The same, in letters where its entries are."""
        return self.saved * element + self.statistics * max(_STATISTIC, element)


class AttentionMemory(NamedTuple):
    """Bytes of attention matrices, for the whole batch except `per_head`."""

    per_head: int
    """The largest matrix of one head of one sample (fused: its log-sum-exps)."""
    per_layer: int
    """Saved for the backward pass by the layer that saves most."""
    all_layers: int
    """Saved for the backward pass by all layers."""
    peak: int
    """The most that is alive at once in inference: scores and their softmax, for example."""


class RowMatrix(NamedTuple):
    """The attention matrix of one row of a ledger."""

    matrix: Matrix
    layer: str
    times: int
    """Repetitions of the row's block."""
    heads: int
    """Heads of all samples."""


def attention_memory(rows: Iterable[RowMatrix], element: int) -> AttentionMemory:
    """The memory of all matrices; `element` is the size of the dtype in bytes."""
    layers: dict[str, int] = {}
    per_head = all_layers = peak = 0
    for matrix_, layer, times, heads in rows:
        saved, output = matrix_.kept_bytes(element), matrix_._replace(alive=matrix_.entries)
        layers[layer] = layers.get(layer, 0) + saved
        all_layers += saved * times
        peak = max(peak, matrix_.alive_bytes(element))
        per_head = max(per_head, output.alive_bytes(element) // heads)
    return AttentionMemory(per_head, max(layers.values(), default=0), all_layers, peak)
