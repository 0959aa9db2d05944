"""The traced account of a training step: a backward pass on `meta`, with contractions counted as they run.

torch's own formulas (`torch.utils.flop_counter`, two FLOPs per MAC) count the contractions, with corrections. A
contraction of the backward pass belongs to the leaf whose forward created its autograd node. So do the saved
activations. Nothing is allocated on `meta`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import flop_registry

from xfcost.torch_models.shared.private_torch import (
    TorchDispatchMode,
    disable_current_modes,
    next_node,
    running_node,
    storage_identity,
)
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.reversible import ReversibleRun
from xfcost.torch_models.tracing.contraction_costs import CONTRACTIONS
from xfcost.torch_models.tracing.dispatch_costs import FLOPS, FLOPS_PER_MAC
from xfcost.torch_models.tracing.kernels import KernelOnMeta
from xfcost.torch_models.tracing.saved_activations import SavedActivations, differentiate

# The number of loop steps to run. From the second step on all cost the same.
_FEW: Final = 3
_TOKENS_RANK: Final = 3


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *others: Any, **_: Any) -> int:
    """The forward's FLOPs for each gradient that is needed. torch's own formula ignores groups."""
    transposed, needed = others[4], others[7]
    positions = x if transposed else gradient
    return FLOPS_PER_MAC * positions.shape[0] * prod(positions.shape[2:]) * prod(weight.shape) * sum(needed[:2])


# Formulas that torch's table lacks or has wrong.
CORRECTED: Final[dict[Any, Callable[..., int]]] = FLOPS | {torch.ops.aten.convolution_backward: _convolution_backward}


class Walked(NamedTuple):
    """One forward and backward pass, by the dotted paths of the leaves; "" is work outside all leaves."""

    forward: Counter[str]
    """MACs."""
    backward: Counter[str]
    """MACs, recomputed forwards included."""
    saved: Counter[str]
    """Bytes of saved activations, by the first leaf that saves them; parameters and buffers excluded."""


def walk(model: nn.Module, inputs: tuple[Tensor, ...]) -> Walked:
    """One forward of `model`, and the backward pass of the sum of its outputs."""
    return _Walk(model).walked(model, inputs)


class _Walk(TorchDispatchMode):
    """Counts contractions for the leaf that runs them or whose gradient they compute, and saved activations."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.macs: Counter[str] = Counter()
        self.saved = SavedActivations(model, lambda: self._running[-1])
        self._paused = False
        self._running: list[str] = [""]
        # autograd numbers its nodes in creation order: first number and leaf of each interval
        self._firsts: list[int] = []
        self._makers: list[str] = []

    def walked(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> Walked:
        """One forward and one backward pass."""
        with (
            self._tracking(model),
            KernelOnMeta(products=True),
            in_few_steps(self._few_steps),
            self,
            torch.enable_grad(),
        ):
            with self.saved.watched():
                outputs = model(*inputs)
            forward, self.macs = self.macs, Counter()
            differentiate(outputs)
        return Walked(forward, self.macs, self.saved.bytes)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        packet = func.overloadpacket
        if self._paused:
            return result
        if packet in CORRECTED:
            self.macs[self._owner()] += CORRECTED[packet](*args, **given) // FLOPS_PER_MAC
        elif packet in CONTRACTIONS:
            self.macs[self._owner()] += CONTRACTIONS[packet](args, result)["macs"]
        elif packet in flop_registry:
            self.macs[self._owner()] += flop_registry[packet](*args, **given, out_val=result) // FLOPS_PER_MAC
        return result

    def _owner(self) -> str:
        """The running leaf, or the one that created the running autograd node."""
        number = running_node()
        if self._running[-1] or number is None:
            return self._running[-1]
        index = bisect_right(self._firsts, number) - 1
        return self._makers[index] if index >= 0 else ""

    @contextmanager
    def _tracking(self, model: nn.Module) -> Iterator[None]:
        """Track the running leaf. A reversible run saves its tensors outside its leaves."""
        with ExitStack() as hooks:
            for name, module in model.named_modules():
                if next(module.children(), None) is None or isinstance(module, ReversibleRun):
                    hooks.enter_context(module.register_forward_pre_hook(self._entering(name)))
                    hooks.enter_context(module.register_forward_hook(self._leaving))
            yield

    def _entering(self, name: str) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            self._running.append(name)
            self._mark()

        return hook

    def _leaving(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._running.pop()
        self._mark()

    def _mark(self) -> None:
        self._firsts.append(next_node())
        self._makers.append(self._running[-1])

    def _few_steps(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A loop over tokens as one autograd node. Its cost is extrapolated from a few of its equal steps."""
        if args[0].ndim != _TOKENS_RANK or args[0].shape[1] <= _FEW + 1:
            return loop(*args)
        self._paused = True
        try:
            found = walked_loop(loop, args, self.saved)
        finally:
            self._paused = False
        self.macs[self._running[-1]] += found.forward

        def gradients() -> list[Tensor | None]:
            self.macs[self._owner()] += found.backward
            return empty_gradients(args)

        return LoopNode.apply(gradients, lambda: shapes(*args), *args)


class WalkedLoop(NamedTuple):
    """MACs of all steps of a loop."""

    forward: int
    backward: int


def walked_loop(loop: Callable[..., Any], args: tuple[Any, ...], saved: SavedActivations) -> WalkedLoop:
    """All steps of a loop over tokens, extrapolated from a few equal ones; what they save is added to `saved`."""
    steps, before = args[0].shape[1], frozenset(saved.storages)
    fewer, more = (_first_steps(loop, args, number, before) for number in (_FEW, _FEW + 1))
    forward, backward, kept = (
        sum(a.values()) + (sum(b.values()) - sum(a.values())) * (steps - _FEW)
        for a, b in ((getattr(fewer.found, name), getattr(more.found, name)) for name in Walked._fields)
    )
    saved.add(kept)
    if saved.on:  # the loop itself saves its arguments in full
        given = {storage_identity(arg.untyped_storage()) for arg in args if isinstance(arg, Tensor)}
        saved.storages |= given & (fewer.storages | more.storages)
    return WalkedLoop(forward, backward)


class _Steps(NamedTuple):
    """The first steps of a loop, and the storages that they save."""

    found: Walked
    storages: set[int]


def _first_steps(loop: Callable[..., Any], args: tuple[Any, ...], steps: int, saved: frozenset[int]) -> _Steps:
    inner = _Walk(nn.Identity())
    inner.saved.storages |= saved
    found = inner.walked(_FunctionModule(loop), tuple(_shortened(arg, steps) for arg in args))
    return _Steps(found, inner.saved.storages)


class _FunctionModule(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _shortened(arg: Any, steps: int) -> Any:
    """The first tokens of (B, N, …). Tensors without tokens (weights, states) are returned unchanged."""
    if not isinstance(arg, Tensor):
        return arg
    part = arg.narrow(1, 0, steps) if arg.ndim == _TOKENS_RANK else arg
    return part.detach().requires_grad_(arg.requires_grad)


class LoopNode(Function):
    """An autograd function with a loop's shapes: `shapes` returns its outputs, `gradients` those of its arguments.

    No mode sees how these are made.
    """

    @staticmethod
    def forward(
        ctx: Any, gradients: Callable[[], Sequence[Tensor | None]], shapes: Callable[[], Any], *args: Any
    ) -> Any:
        ctx.gradients = gradients
        ctx.set_materialize_grads(False)
        return shapes()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, ...]:
        with disable_current_modes():
            return None, None, *ctx.gradients()


def empty_gradients(args: Sequence[Any]) -> list[Tensor | None]:
    """A gradient without values for each argument that has one."""
    return [torch.empty_like(arg) if isinstance(arg, Tensor) and arg.requires_grad else None for arg in args]
