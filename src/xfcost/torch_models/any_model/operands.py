"""The tensors of a call: the bytes that they move, and their shapes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def operand_bytes(name: str, given: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """Bytes of inputs, outputs and weights, each tensor once; of a table those of its rows that are read."""
    held = {id(one): one.numel() * one.element_size() for one in (*given, *results)}
    if name == "embedding" and given and results:
        held[id(given[0])] = min(held[id(given[0])], held[id(results[0])])
    return sum(held.values())


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The sizes of a tensor; a nested one has none."""
    return () if tensor.is_nested else tuple(tensor.shape)
