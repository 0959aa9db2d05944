"""What autograd saves for the backward pass, in bytes; and the backward pass of whatever a model returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from xfcost.torch_models.shared.private_torch import pytree, run_backward, sparse_parts, storage_identity


class SavedActivations:
    """Bytes of saved tensors, each storage once, by the owner that saves it first; parameters and buffers left out."""

    def __init__(self, model: nn.Module, owner: Callable[[], Any]) -> None:
        self.bytes: Counter[Any] = Counter()
        self.owner = owner
        """Whoever saves now."""
        self.on = False
        self.storages = {
            storage_identity(part.untyped_storage())
            for tensor in (*model.parameters(), *model.buffers())
            for part in strided_parts(tensor)
        }
        self._alive: list[Any] = []  # alive until all are counted: the address of a freed storage can be reused

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What is saved inside counts."""
        self.on = True
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor):
                yield
        finally:
            self.on = False

    def add(self, number: int) -> None:
        """Count `number` bytes that no tensor shows, if saving counts now."""
        if self.on:
            self.bytes[self.owner()] += number

    def _save(self, tensor: Tensor) -> Tensor:
        for part in strided_parts(tensor):
            storage = part.untyped_storage()
            identity = storage_identity(storage)
            if self.on and identity not in self.storages:
                self.storages.add(identity)
                self._alive.append(storage)
                self.bytes[self.owner()] += storage.nbytes()
        return tensor


def strided_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that hold a tensor's elements: of a sparse one its indices and values."""
    if tensor.layout is torch.sparse_coo:
        return sparse_parts(tensor)
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.values(),) if tensor.layout is torch.jagged else (tensor,)


def differentiate(outputs: Any) -> None:
    """The backward pass of the sum of all `outputs` that have a gradient."""
    tensors = tuple(
        output for output in pytree.tree_iter(outputs) if isinstance(output, Tensor) and output.requires_grad
    )
    gradients = tuple(torch.ones_like(output) for output in tensors)
    run_backward(tensors, gradients)
