"""Restores a module after a run that may write buffers, parameters, attributes or random states."""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from xfcost.torch_models.shared.private_torch import tensors_of, times_written


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Let `model` run, then restore its tensors, attributes, hooks and the random states.

    The run works on copies of buffers and of embedding tables with a maximum norm. Other parameters are not copied,
    because they may fill the memory; no module of torch writes to them.

    Warns:
        UserWarning: the model wrote to another parameter. On `meta` there is nothing to write to.
    """
    versions = _versions(model)
    attributes = _Attributes(model)
    try:
        _stand_in(model)
        with _random_states_kept(sorted({one.device.index for one in model.parameters() if one.is_cuda})):
            yield
    finally:
        attributes.put_back()
        written = [name for name, version in _versions(model).items() if version != versions.get(name)]
        if written:
            warnings.warn(
                f"the model changes its own parameters when it runs, and the trace ran it: {written}", stacklevel=2
            )


def _versions(model: nn.Module) -> dict[str, int]:
    """How often each parameter that has elements was written."""
    with_elements = ((name, one) for name, one in model.named_parameters() if not one.is_meta)
    return {name: times_written(one) for name, one in with_elements}


class _Attributes:
    """Stores the attributes of each module, and the contents of dictionaries, lists and sets among them.

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
    """Replace each tensor that a torch module may write with a copy; shared tensors stay shared."""
    copies: dict[int, Any] = {}
    for module in model.modules():
        for buffer in module.buffers(recurse=False):
            copies[id(buffer)] = buffer if buffer.is_meta else buffer.detach().clone()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            copies[id(module.weight)] = nn.Parameter(module.weight.detach().clone(), module.weight.requires_grad)
    for module in model.modules():
        for tensors in tensors_of(module):
            tensors.update({name: copies[id(one)] for name, one in tensors.items() if id(one) in copies})


@contextmanager
def _random_states_kept(devices: list[int]) -> Iterator[None]:
    """Restore the random states of torch on the CPU and on `devices`, of Python and of numpy."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - it is the global one that is kept
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
