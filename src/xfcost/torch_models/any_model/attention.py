"""Attention scores of a run: softmax over a product of two activations, and fused kernels."""

from __future__ import annotations

from math import prod

from xfcost.ledger.attention_core import AttentionCore
from xfcost.ledger.matrices import Matrix
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.running.record import Lineage, TensorRecord


def note_softmax(softmax: Work, scores: TensorRecord, lineage: Lineage, axis: int) -> None:
    """If `scores` are a product of two activations, they are attention scores, and the softmax makes the weights."""
    product: Work | None = lineage.scores
    if product is None or (lineage.mapped and not _same_matrix(product, scores, axis)):
        return
    entries = scores.numel
    keys = scores.shape[axis]
    product.entries += entries
    product.heads = softmax.heads = scores.shape[:-2].numel() if len(scores.shape) > 2 else 1  # noqa: PLR2004
    product.matrix = _with(product.matrix, entries, alive=entries, saved=0)
    softmax.matrix = _with(softmax.matrix, entries, alive=2 * entries, saved=entries)
    softmax.fused_statistics += entries // keys if keys else 0


def _same_matrix(product: Work, scores: TensorRecord, axis: int) -> bool:
    """Do `scores` have the product's elements, queries and keys? Otherwise a map has made something else."""
    made = product.outputs[0]
    queries, keys = scores.shape[-2:] if axis in (-1, len(scores.shape) - 1) else (0, 0)
    return prod(made) == scores.numel and {queries, keys} == set(made[-2:])


def _with(before: Matrix | None, entries: int, *, alive: int, saved: int) -> Matrix:
    """The matrices of all calls: those saved for training add up, of those alive at once the largest counts."""
    if before is None:
        return Matrix(entries, alive, saved)
    return Matrix(before.entries + entries, max(before.alive, alive), before.saved + saved)


def note_fused(attention: Work, q: TensorRecord, k: TensorRecord, v: TensorRecord) -> None:
    """A fused kernel of q (…, N, K), k (…, M, K), v (…, M, V): no matrix, a log-sum-exp per head and query."""
    heads, (queries, width), keys = q.shape[:-2].numel(), q.shape[-2:], k.shape[-2]
    statistics = heads * queries
    before = attention.matrix.statistics if attention.matrix else 0
    attention.matrix = Matrix(0, 0, 0, before + statistics)
    attention.entries += statistics
    attention.heads = heads
    attention.fused_entries += heads * queries * keys
    attention.core = AttentionCore(heads, queries, keys, width, v.shape[-1])
