"""The bytes that autograd saves for the backward pass, measured by its own hooks."""

import torch
from torch import Tensor, nn


def saved_bytes(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Bytes of saved activations of one forward: the tensors that autograd saves, without parameters."""
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    saved_by_storage: dict[int, int] = {}
    saved = []  # alive until all are counted: the address of a freed storage can be reused

    def see(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved_by_storage[storage._cdata] = storage.nbytes()
            saved.append(storage)
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor):
        model(*inputs)
    return sum(saved_by_storage.values())
