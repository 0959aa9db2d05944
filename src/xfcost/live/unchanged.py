"""A trace runs the module, and what runs may write: into buffers, parameters, attributes, the random state.

All of it is put back, whether the run ends well or not.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


@contextmanager
def unchanged(model: nn.Module, inputs: tuple[Tensor, ...]) -> Iterator[None]:
    """Let `model(*inputs)` run, and leave all as it was: what its tensors hold, its attributes and hooks, random states.

    Buffers are swapped for copies meanwhile, for a batch norm writes into them where torch doesn't say so. Of
    parameters and inputs, which may be large, a copy is made only of those that an operation is about to write into.
    """
    attributes = _Attributes(model)
    with _random_states_kept(_cuda_devices((*model.parameters(), *inputs))):
        _swap_buffers(model)
        try:
            watch = _WritesUndone((*model.parameters(), *inputs))
            with watch if watch.watched else nullcontext():
                yield
        finally:
            attributes.put_back()


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


def _swap_buffers(model: nn.Module) -> None:
    """A copy in the place of every buffer; one that several modules share stays shared."""
    copies: dict[int, Tensor] = {}
    for module in model.modules():
        for name, buffer in module._buffers.items():  # noqa: SLF001 - setattr would run a module's own
            if buffer is not None and not buffer.is_meta:
                module._buffers[name] = copies.setdefault(id(buffer), buffer.detach().clone())  # noqa: SLF001


class _WritesUndone(TorchDispatchMode):
    """What stood in a tensor before an operation wrote into it is kept, and put back at the end."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.watched: dict[int, list[Tensor]] = {}
        for tensor in tensors:
            if _has_memory(tensor):
                self.watched.setdefault(_memory(tensor), []).append(tensor.detach())
        self.before: list[tuple[Tensor, Tensor]] = []

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        with torch.no_grad():
            for tensor, values in self.before:
                tensor.copy_(values)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:  # noqa: SLF001 - the only place where torch says so
            for place, argument in enumerate(func._schema.arguments):  # noqa: SLF001
                given = args[place] if place < len(args) else kwargs.get(argument.name)
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._keep(given)
        return func(*args, **kwargs)

    def _keep(self, written: Any) -> None:
        for tensor in written if isinstance(written, list | tuple) else [written]:
            if isinstance(tensor, Tensor) and _has_memory(tensor):
                self.before += [(one, one.clone()) for one in self.watched.pop(_memory(tensor), ())]


def _has_memory(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_meta and not tensor.is_nested


def _memory(tensor: Tensor) -> int:
    """What tells the memory of a tensor from others', whichever view of it one holds."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001


def _cuda_devices(tensors: tuple[Tensor, ...]) -> list[int]:
    return sorted({tensor.device.index for tensor in tensors if tensor.is_cuda})


@contextmanager
def _random_states_kept(devices: list[int]) -> Iterator[None]:
    """Of torch on the CPU and on `devices`, of Python and of numpy."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - whoever draws from it draws the same after
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
