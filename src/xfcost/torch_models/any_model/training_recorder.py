"""Records a forward and the backward pass of what it returns: each operation with its gradients and saved activations.

An operation of the backward pass belongs to the forward operation whose autograd node runs it. Autograd numbers its
nodes in the order in which they are made, and makes a node before its operation runs. What runs with gradients enabled
during the backward pass is a forward that runs again (checkpointing, reversible residuals).
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model.backward_costs import backward_macs
from xfcost.torch_models.any_model.costs import does_work, operation_costs, operation_name
from xfcost.torch_models.any_model.lineage import Lineage, note
from xfcost.torch_models.any_model.recorder import Clock, Recorder, called_from
from xfcost.torch_models.any_model.stand_in import reached
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.shared.private_torch import disable_current_modes, next_node, running_node
from xfcost.torch_models.tracing.backward import LoopNode, empty_gradients, walked_loop
from xfcost.torch_models.tracing.dispatch import runs_whole
from xfcost.torch_models.tracing.saved_activations import SavedActivations, differentiate

Key = tuple[Any, ...]
# What no forward operation has caused, such as a hook on a parameter's gradient.
_NOBODY: Final[Key] = ("", "backward", None, None)

# What starts a backward pass.
_STARTS: Final = frozenset((torch.autograd.backward, torch.autograd.grad, Tensor.backward))


class TrainingRecorder(Recorder):
    """A recorder of a forward, then of its backward pass."""

    def __init__(self, model: nn.Module, clock: Clock | None = None, *, keeps_free: bool = False) -> None:
        super().__init__(clock, keeps_free=keeps_free)
        self.saved = SavedActivations(model, _newest_node)
        self.uncounted_backward: Counter[str] = Counter()
        self._recomputing = False
        self._ends: list[int] = []  # autograd's next number when an operation runs: its own node is the last before
        self._keys: list[tuple[Key, bool]] = []  # the operations, and whether they have costs
        self._calls: dict[Key, list[Key]] = defaultdict(list)

    def differentiate(self, outputs: Any) -> None:
        """Run the backward pass of `outputs`.

        Raises:
            UsageError: none of them has a gradient.
        """
        for key in self.works:
            self._calls[key[2:]].append(key)
        self.whole = False
        differentiate(learned_from(outputs))
        for number, saved in self.saved.bytes.items():
            self.work_at(self._maker(number)).kept_bytes += saved

    def belongs(self, func: Any, work: Work | None) -> None:
        super().belongs(func, work)
        if work is None:
            self._own(self.key(operation_name(func), sys._getframe(1)), has_costs=False)  # noqa: SLF001 - the call's place
        elif work.place is not None:
            self._own(work.place, has_costs=True)

    def _own(self, key: Key, *, has_costs: bool) -> None:
        """The nodes made since the last operation are `key`'s; of a custom function, its first part's with costs."""
        number = next_node()
        if not self._ends or self._ends[-1] != number:
            self._ends.append(number)
            self._keys.append((key, has_costs))
        elif has_costs and not self._keys[-1][1]:
            self._keys[-1] = (key, has_costs)

    def _maker(self, number: int) -> Key:
        """The operation that made the node of this number."""
        place = bisect_left(self._ends, number + 1)
        return self._keys[place][0] if place < len(self._keys) else _NOBODY

    def see(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if self.whole:
            super().see(func, args, kwargs, result)
        elif self._recomputing or torch.is_grad_enabled():
            self._again(func, args, kwargs, result)
        else:
            if self.clock is not None and does_work(func):
                self.charge(self._running_key())
            macs = backward_macs(func, args, kwargs, result)
            if macs is None:
                self.uncounted_backward[f"{operation_name(func)} in the backward pass"] += 1
            elif macs:
                self._count_backward(macs)

    def _count_backward(self, macs: int) -> None:
        """MACs of the autograd node that runs now."""
        self.work_at(self._running_key()).backward_macs += macs

    def _running_key(self) -> Key:
        number = running_node()
        return _NOBODY if number is None else self._maker(number)

    def _again(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """A forward operation that runs again."""
        costs, name = operation_costs(func, args, kwargs, result), operation_name(func)
        key = self._original(name, called_from(sys._getframe(1)))  # noqa: SLF001 - the call's place in the source
        self._own(key, has_costs=bool(costs and any(costs.values())))
        if self.clock is not None and does_work(func):
            self.charge(key)
        if costs is None:
            self.uncounted_backward[f"{name}, recomputed in the backward pass"] += 1
        elif key in self.works or costs["macs"]:  # not the parts of a function that costs nothing
            work = self.work_at(key)
            work.recomputed = True
            work.backward_macs += costs["macs"]
            work.recomputed_macs += costs["macs"]

    def _original(self, name: str, call: tuple[Any, Any]) -> Key:
        """The operation that ran first at this call: in the module that runs again, or around the node in need."""
        inside = self.running[-1] if len(self.running) > 1 else None
        around = self._running_key()[0]

        def fits(path: str) -> bool:
            return path == inside if inside is not None else _is_inside(around, path)

        found = [key for key in self._calls.get(call, ()) if fits(key[0])]
        if not found:
            return (around if inside is None else inside, name, *call)
        return max(found, key=lambda key: (len(key[0]), key[1] == name))

    def part_of_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        """With gradients enabled it runs again, and so do its parts, even those without."""
        before = self._recomputing
        self._recomputing = before or (torch.is_grad_enabled() and func not in _STARTS)
        try:
            return func(*args, **kwargs)
        finally:
            self._recomputing = before

    @contextmanager
    def in_thread(self, path: str) -> Iterator[None]:
        self.uncounted_backward["saved activations of another thread"] += 1
        with super().in_thread(path):
            yield

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if runs_whole(args):
            return super().loop(loop, shapes, args)
        with torch.no_grad():
            super().loop(loop, shapes, args)
        with disable_current_modes():
            backward = walked_loop(loop, args, self.saved).backward

        def gradients() -> list[Tensor | None]:
            self._count_backward(backward)
            return empty_gradients(args)

        result = LoopNode.apply(gradients, lambda: shapes(*args), *args)
        self._own(self.key(f"xfcost::{loop.__name__}", sys._getframe(1)), has_costs=True)  # noqa: SLF001 - the call's place
        for tensor in reached(result):
            note(tensor, Lineage(varies=True))
        return result


def _newest_node() -> int:
    """The number of the node that was made last."""
    return next_node() - 1


def _is_inside(path: str, module: str) -> bool:
    return not module or path == module or path.startswith(f"{module}.")


def learned_from(outputs: Any) -> list[Tensor]:
    """The loss, if a model returns one, else everything with a gradient.

    Raises:
        UsageError: nothing has a gradient.
    """
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    is_one = isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1
    tensors: list[Tensor] = [loss] if is_one else reached(outputs)  # type: ignore[list-item]
    found = {id(one): one for one in tensors if one.requires_grad}
    if not found:
        raise UsageError(
            "--mode train: nothing that the module returns has a gradient: no parameter that requires one leads to it "
            "by differentiable operations"
        )
    return list(found.values())
