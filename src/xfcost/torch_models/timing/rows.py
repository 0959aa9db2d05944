"""Seconds and bytes of every row, over all its blocks, noted around the leaves of a model.

A leaf that is called several times counts the sum. On a GPU the seconds are those of kernels, elsewhere those of a
clock; those of a backward pass are of the autograd nodes that a leaf made. A recorder in the place of these hooks would
stand between the small calls of a loop, which would take twice as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.running.by_row import leaf_rows
from xfcost.torch_models.running.record import NodeOwners
from xfcost.torch_models.running.recorder import Recorder, strided_parts
from xfcost.torch_models.shared.private_torch import next_node, node_number, pytree, storage_identity
from xfcost.torch_models.timing.devices import Clock
from xfcost.torch_models.timing.kernels import RowSeconds, kernels_of, launched_by


def leaves(live: BuiltModel) -> list[tuple[str, nn.Module]]:
    """The row path and the module of each leaf of a row."""
    return [(path, live.model.get_submodule(name)) for name, path in leaf_rows(live.model, live.rows).items()]


@contextmanager
def _around_leaves(live: BuiltModel, leave: Callable[..., None], enter: Callable[[str], object]) -> Iterator[None]:
    """Call `enter` with a row's path before each of its leaves runs; then `leave`, with its module and tensors too."""
    with ExitStack() as hooks:
        for path, module in leaves(live):
            hooks.enter_context(module.register_forward_pre_hook(lambda *_, path=path: enter(path)))
            hooks.enter_context(module.register_forward_hook(partial(leave, path), with_kwargs=True))
        yield


def kernel_seconds(live: BuiltModel | None, call: Callable[[], object], device: str) -> RowSeconds:
    """Seconds of the kernels of each row in one `call` on a GPU, its backward pass and the optimizer's step with it.

    Without a `live` model all kernels are of no row.
    """
    if live is None:
        return kernels_of(call, device)
    entered: list[AbstractContextManager[Any]] = []

    def enter(path: str) -> None:
        entered.append(launched_by(path))
        entered[-1].__enter__()

    def leave(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    with _around_leaves(live, leave, enter):
        return kernels_of(call, device)


def row_seconds(
    live: BuiltModel, call: Callable[[], object], clock: Clock, *, backward: bool = False
) -> dict[str, float]:
    """Seconds of each row in one `call` of the model; with `backward` also in the backward pass of what it returns."""
    seconds: dict[str, float] = {}
    makers, began = NodeOwners(), 0.0
    owners = {id(weight): path for path, leaf in leaves(live) for weight in leaf.parameters(recurse=False)}

    def enter(path: str) -> None:
        nonlocal began
        makers.own(next_node(), None, has_costs=True)
        began = clock()

    def leave(path: str, *_: Any) -> None:
        seconds[path] = seconds.get(path, 0.0) + clock() - began
        makers.own(next_node(), path, has_costs=True)

    def maker(node: Any) -> str | None:
        if hasattr(node, "variable"):  # it adds up a parameter's gradient
            return owners.get(id(node.variable))
        made: str | None = makers.owner(node_number(node))
        return made

    with _around_leaves(live, leave, enter):
        result = call()
    if backward:
        _backward_clocked(result, maker, clock, seconds)
    return seconds


def _backward_clocked(
    loss: Any, maker: Callable[[Any], str | None], clock: Clock, seconds: dict[str, float]
) -> None:  # fmt: skip
    """The backward pass of `loss`; the seconds of each node are added to the row that made it."""
    started: list[float] = []

    def begins(gradients: Any) -> None:
        started.append(clock())

    def ends(path: str) -> Callable[..., None]:
        def add(*_: Any) -> None:
            seconds[path] = seconds.get(path, 0.0) + clock() - started.pop()

        return add

    waiting, seen = [loss.grad_fn], set()
    with ExitStack() as hooks:
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
            if (path := maker(node)) is not None:
                for handle in (node.register_prehook(begins), node.register_hook(ends(path))):
                    hooks.callback(handle.remove)
        loss.backward()


def row_bytes(live: BuiltModel, run: Callable[[], object] | None = None) -> dict[str, int]:
    """Bytes of the inputs and outputs of each row in one forward, or in another `run`. Works on `meta`.

    Where gradients are needed, also what the backward pass moves: the gradients of these and of the row's weights, and
    what autograd saved for it.
    """
    found: Counter[str] = Counter()
    saved: dict[int, tuple[Any, int]] = {}

    def save(tensor: Tensor) -> Tensor:
        for part in strided_parts(tensor):
            storage = part.untyped_storage()  # kept, so that its address is its own
            saved[storage_identity(storage)] = storage, min(storage.nbytes(), tensor_bytes(part))
        return tensor

    def leave(path: str, module: nn.Module, *tensors: Any) -> None:
        found[path] += tensor_bytes(tensors)
        if any(_learns(one) for one in pytree.tree_iter(tensors[-1])):
            learning = [*filter(_learns, pytree.tree_iter((tensors, list(module.parameters(recurse=False)))))]
            found[path] += tensor_bytes(learning) + sum(held for _, held in saved.values())

    with (
        _around_leaves(live, leave, lambda path: saved.clear()),
        torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
        torch.set_grad_enabled(run is not None),
    ):
        run() if run is not None else live.model(*live.inputs)
    return dict(found)


def tensor_bytes(values: Any) -> int:
    """Bytes of all elements of the tensors in a structure, of each tensor once."""
    tensors = {id(one): one for one in pytree.tree_iter(values) if isinstance(one, Tensor)}
    return sum(one.numel() * one.element_size() for one in tensors.values())


def _learns(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def training_bytes(architecture: Architecture, optimizer: str) -> dict[str, int]:
    """Bytes of each row in a step of training on `meta`, but for the weights that the forward reads.

    A table that other rows read has only its gradient.
    """
    live = build(architecture)
    stepping = Stepping(live, optimizer, lists=False)
    with Recorder(calls=False, numbers_on_meta=True).of(live.model):
        found = row_bytes(live, lambda: stepping.forward().backward())
    return {path: tensor_bytes(list(leaf.parameters())) for path, leaf in leaves(live) if path not in found} | found
