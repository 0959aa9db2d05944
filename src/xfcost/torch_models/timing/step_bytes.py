"""Bytes that rows move in a step of training, and in all decode steps of a generation; found on `meta`."""

from __future__ import annotations

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
from xfcost.torch_models.shared.private_torch import pytree, storage_identity
from xfcost.torch_models.timing.rows import leaves, row_bytes, tensor_bytes

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
