"""Seconds of every row, by clocks around the leaves of a model; and the bytes of their inputs and outputs.

A row's seconds are those of all its blocks; a leaf that is called several times counts the sum. The clocks wait for the
device, so that operations on a GPU no longer overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.shared.private_torch import pytree
from xfcost.torch_models.timing.devices import Clock
from xfcost.torch_models.tracing.rows import leaf_rows


def leaves(live: BuiltModel) -> Iterator[tuple[str, nn.Module]]:
    """The row path and the module of each leaf of a row."""
    for name, path in leaf_rows(live.model, live.rows).items():
        yield path, live.model.get_submodule(name)


def blocks_of(live: BuiltModel) -> Counter[str]:
    """How many leaves, one per block, every row has."""
    return Counter(path for path, _ in leaves(live))


def row_seconds(live: BuiltModel, call: Callable[[], object], clock: Clock) -> dict[str, float]:
    """Seconds of each row in one `call` of the model."""
    seconds: dict[str, float] = {}
    with leaves_clocked(live, clock, seconds):
        call()
    return seconds


@contextmanager
def leaves_clocked(live: BuiltModel, clock: Clock, seconds: dict[str, float]) -> Iterator[None]:
    """Add the seconds of each leaf's forward to its row."""
    started: dict[nn.Module, float] = {}

    def start(module: nn.Module, inputs: object) -> None:
        started[module] = clock()

    def stop(path: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, outputs: object) -> None:
            seconds[path] = seconds.get(path, 0.0) + clock() - started[module]

        return hook

    with ExitStack() as hooks:
        for path, module in leaves(live):
            hooks.enter_context(module.register_forward_pre_hook(start))
            hooks.enter_context(module.register_forward_hook(stop(path)))
        yield


def row_bytes(live: BuiltModel) -> dict[str, int]:
    """Bytes of the inputs and outputs of each row in one forward, over all its blocks. Works on `meta`."""
    found: dict[str, int] = {}

    def count(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, given: Any, outputs: Any) -> None:
            found[path] = found.get(path, 0) + tensor_bytes((inputs, given, outputs))

        return hook

    with ExitStack() as hooks, torch.no_grad():
        for path, module in leaves(live):
            hooks.enter_context(module.register_forward_hook(count(path), with_kwargs=True))
        live.model(*live.inputs)
    return found


def row_bytes_of(architecture: Architecture) -> dict[str, int]:
    """The same of a model that is built for it, on `meta`."""
    with no_compiler():
        return row_bytes(build(architecture))


def tensor_bytes(values: Any) -> int:
    """Bytes of all elements of the tensors in a structure, of each tensor once."""
    tensors = {id(one): one for one in pytree.tree_iter(values) if isinstance(one, Tensor)}
    return sum(one.numel() * one.element_size() for one in tensors.values())
