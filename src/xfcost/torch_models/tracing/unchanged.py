"""A trace runs the module, and what runs may write: into buffers, parameters, attributes, the random state.

All of it is put back, whether the run ends well or not.
"""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Let `model` run, and leave all as it was: what its tensors hold, its attributes and hooks, random states.

    Copies stand in for its buffers meanwhile, and for embedding tables whose rows are held to a norm. Other parameters
    are not copied, for they may fill the memory; no module of torch writes into them.

    Warns:
        UserWarning: the model wrote into a parameter all the same.
    """
    versions = {name: _version(parameter) for name, parameter in model.named_parameters()}
    attributes = _Attributes(model)
    try:
        _stand_in(model)
        with _random_states_kept(sorted({one.device.index for one in model.parameters() if one.is_cuda})):
            yield
    finally:
        attributes.put_back()
        written = [name for name, one in model.named_parameters() if _version(one) != versions.get(name)]
        if written:
            warnings.warn(
                f"the model changes its own parameters when it runs, and the trace ran it: {written}", stacklevel=2
            )


def _version(parameter: Tensor) -> int:
    """How often a tensor was written into."""
    return parameter._version  # noqa: SLF001 - autograd's own, and the only one


class _Attributes:
    """What every module's attributes are, and what stands in those that are dictionaries, lists or sets.

    Hooks, buffers, parameters and submodules are such dictionaries.
    """

    def __init__(self, model: nn.Module) -> None:
        self.values = {module: dict(vars(module)) for module in model.modules()}
        containers = (value for values in self.values.values() for value in values.values())
        self.contents = [(value, value.copy()) for value in containers if isinstance(value, dict | list | set | deque)]

    def put_back(self) -> None:
        for module, values in self.values.items():
            vars(module).clear()
            vars(module).update(values)
        for container, content in self.contents:
            container.clear()
            if isinstance(container, dict | set):
                container.update(content)
            else:
                container.extend(content)


def _stand_in(model: nn.Module) -> None:
    """Put a copy in the place of every tensor that a module of torch may write into; shared ones stay shared."""
    copies: dict[int, Any] = {}
    for module in model.modules():
        for buffer in module.buffers(recurse=False):
            copies[id(buffer)] = buffer if buffer.is_meta else buffer.detach().clone()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            copies[id(module.weight)] = nn.Parameter(module.weight.detach().clone(), module.weight.requires_grad)
    for module in model.modules():
        for tensors in (module._buffers, module._parameters):  # noqa: SLF001 - setattr may be a module's own
            tensors.update({name: copies[id(one)] for name, one in tensors.items() if id(one) in copies})


@contextmanager
def _random_states_kept(devices: list[int]) -> Iterator[None]:
    """Of torch on the CPU and on `devices`, of Python and of numpy."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - it is the global one that is kept
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
