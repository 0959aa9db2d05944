"""Seconds of every row, by clocks around the leaves of a model; and the bytes of their inputs and outputs.

A row's seconds are those of all its blocks; a leaf that is called several times counts the sum. The clocks wait for the
device, so that operations on a GPU no longer overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.counting.decoding import cost_lengths
from xfcost.counting.forward import count
from xfcost.counting.sums import Costs, sum_over_sizes
from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import weights_read
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.running.recorder import Recorder, strided_parts
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.shared.private_torch import next_node, node_number, pytree, storage_identity
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


# Steps at which bytes are looked at; where sums take more, rows have none.
_MOST_STEPS: Final = 512


def training_bytes(architecture: Architecture, optimizer: str) -> dict[str, int]:
    """Bytes of each row over all its blocks, but for the weights that the forward reads.

    In the forward its inputs and outputs. In the backward pass the gradients of these and of its weights, and what
    autograd saved for it. A table that other rows read has its gradient alone.
    """
    live = build(architecture)
    stepping, moved = Stepping(live, optimizer, lists=False), _Moved()
    with moved.by_leaves_of(live), Recorder(calls=False, numbers_on_meta=True).of(live.model):
        stepping.forward().backward()
    shared = {path: tensor_bytes(list(leaf.parameters())) for path, leaf in leaves(live) if path not in moved.bytes}
    return shared | moved.bytes


class _Moved:
    """Bytes of rows, noted while their leaves run forward; those of the backward pass follow from them."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self._saved: dict[int, tuple[Any, int]] | None = None

    @contextmanager
    def by_leaves_of(self, live: BuiltModel) -> Iterator[None]:
        with ExitStack() as hooks:
            for path, module in leaves(live):
                hooks.enter_context(module.register_forward_pre_hook(self._start))
                hooks.enter_context(module.register_forward_hook(partial(self._stop, path), with_kwargs=True))
            hooks.enter_context(torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor))
            yield

    def _start(self, module: nn.Module, inputs: Any) -> None:
        self._saved = {}

    def _save(self, tensor: Tensor) -> Tensor:
        if self._saved is None:  # outside the leaves
            return tensor
        for part in strided_parts(tensor):
            storage = part.untyped_storage()  # kept, so that its address is its own
            self._saved[storage_identity(storage)] = storage, min(storage.nbytes(), tensor_bytes(part))
        return tensor

    def _stop(self, path: str, module: nn.Module, inputs: Any, given: Any, outputs: Any) -> None:
        saved, self._saved = self._saved or {}, None
        self.bytes[path] += tensor_bytes((inputs, given, outputs))
        if any(isinstance(one, Tensor) and one.requires_grad for one in pytree.tree_iter(outputs)):
            weights = list(module.parameters(recurse=False))
            learning = [one for one in pytree.tree_iter((inputs, given, outputs, weights)) if _learns(one)]
            self.bytes[path] += tensor_bytes(learning) + sum(held for _, held in saved.values())


def _learns(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def generation_bytes(prefill: dict[str, int], step: Architecture, positions: Sequence[int]) -> dict[str, int]:
    """Bytes of each row of a generation over all its blocks: `prefill`'s, and those of all decode steps.

    Those of decode steps have the weights too, but for one step's of rows that say which they read. There are none
    where too many steps differ to be summed.
    """
    found = {f"prefill.{path}": held for path, held in prefill.items()}
    if not positions:
        return found
    live = build(step)
    paths = list(_at(live, positions[-1] + 1))

    def held(tokens: int) -> Costs:
        by_path = _at(live, tokens)
        return tuple(by_path.get(path, 0) for path in paths)

    try:
        sums = sum_over_sizes(_few(held), positions[0] + 1, positions[-1] + 1, cost_lengths(step))
    except UsageError:
        return found
    weights = _weights(step, len(positions))
    return found | {f"decode.{path}": spent + weights.get(path, 0) for path, spent in zip(paths, sums, strict=True)}


def _at(live: BuiltModel, tokens: int) -> dict[str, int]:
    """Bytes of inputs and outputs of the step that reads so many tokens."""
    set_position(live.model, tokens - 1)
    return row_bytes(live)


def _few(held: Callable[[int], Costs]) -> Callable[[int], Costs]:
    """The same, refused after many calls."""
    calls = 0

    def counted(tokens: int) -> Costs:
        nonlocal calls
        calls += 1
        if calls > _MOST_STEPS:
            raise UsageError(f"more than {_MOST_STEPS} steps differ")
        return held(tokens)

    return counted


def _weights(step: Architecture, steps: int) -> dict[str, int]:
    """Bytes of the weights that rows read in all steps; of rows that say which they read, in all but one."""
    ledger = count(step, orders=False)
    return {
        row.path: weights_read(row)
        * row.times
        * ledger.bytes_per_element
        * (steps - 1 if row.weights_read is not None else steps)
        for row in ledger.rows
    }
