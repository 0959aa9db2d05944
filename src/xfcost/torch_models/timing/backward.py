"""Seconds of every row's backward pass, by clocks around the autograd nodes that its leaves created."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.shared.private_torch import next_node, node_number
from xfcost.torch_models.timing.devices import Clock
from xfcost.torch_models.timing.rows import leaves


class NodeMakers:
    """Which row created an autograd node: torch numbers them in the order of creation."""

    def __init__(self, live: BuiltModel) -> None:
        self._live = live
        self._firsts: list[int] = []
        self._paths: list[str | None] = []
        self._owners = {id(weight): path for path, leaf in leaves(live) for weight in leaf.parameters(recurse=False)}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note which numbers belong to which row while the model runs forward."""
        with ExitStack() as hooks:
            for path, module in leaves(self._live):
                hooks.enter_context(module.register_forward_pre_hook(self._from_here(path)))
                hooks.enter_context(module.register_forward_hook(self._from_here(None)))
            yield

    def _from_here(self, path: str | None) -> Callable[..., None]:
        def hook(module: nn.Module, *_: object) -> None:
            self._firsts.append(next_node())
            self._paths.append(path)

        return hook

    def path(self, node: Any) -> str | None:
        """The row of a node; None of one that no leaf created."""
        if hasattr(node, "variable"):  # it adds up a parameter's gradient
            return self._owners.get(id(node.variable))
        index = bisect_right(self._firsts, node_number(node)) - 1
        return self._paths[index] if index >= 0 else None


def nodes_of(loss: Tensor) -> Iterator[Any]:
    """Every node of the graph behind `loss`, once."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [next_node for next_node, _ in node.next_functions]


@contextmanager
def nodes_clocked(loss: Tensor, makers: NodeMakers, clock: Clock, seconds: dict[str, float]) -> Iterator[None]:
    """Add the seconds of each node's backward pass to the row that created it."""
    started: list[float] = []

    def start(path: str) -> None:
        started.append(clock())

    def stop(path: str) -> None:
        seconds[path] = seconds.get(path, 0.0) + clock() - started.pop()

    with nodes_entered(loss, makers.path, start, stop):
        yield


@contextmanager
def nodes_entered(
    loss: Tensor, path_of: Callable[[Any], str | None], enter: Callable[[str], None], leave: Callable[[str], None]
) -> Iterator[None]:
    """Call `enter` and `leave` with the path of each node that has one around its backward pass."""

    def start(path: str) -> Callable[[Any], None]:
        return lambda gradients: enter(path)

    def stop(path: str) -> Callable[[Any, Any], None]:
        return lambda inputs, outputs: leave(path)

    with ExitStack() as hooks:
        for node in nodes_of(loss):
            if (path := path_of(node)) is not None:
                for handle in (node.register_prehook(start(path)), node.register_hook(stop(path))):
                    hooks.callback(handle.remove)
        yield
