"""The traced account of a training step: the real model's loss driven back on `meta`, products counted as they run.

What a product costs is torch's own formula (`torch.utils.flop_counter`, two FLOPs a MAC), mended where that is wrong.
A product of the backward pass belongs to the leaf whose forward made the step of autograd that runs it; so does what
autograd saves for it. On `meta` nothing is allocated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.reversible import ReversibleRun
from xfcost.torch_models.tracing.dispatch_costs import CONTRACTIONS, FLOPS_PER_MAC
from xfcost.torch_models.tracing.kernels import KernelOnMeta

# Steps of a loop that are walked: from the second on, every step adds the same.
_FEW: Final = 3
_TOKENS_RANK: Final = 3


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *others: Any, **_: Any) -> int:
    """As many products as its forward for each gradient that is asked; torch's formula forgets groups."""
    transposed, asked = others[4], others[7]
    positions = x if transposed else gradient
    return FLOPS_PER_MAC * positions.shape[0] * prod(positions.shape[2:]) * prod(weight.shape) * sum(asked[:2])


# What torch's table has wrong, or not at all.
MENDED: Final[dict[Any, Callable[..., int]]] = CONTRACTIONS | {
    torch.ops.aten.convolution_backward: _convolution_backward,
}


class Walked(NamedTuple):
    """One forward and backward of a model, by the dotted paths of its leaves; "" is what ran outside all of them."""

    forward: Counter[str]
    """MACs."""
    backward: Counter[str]
    """MACs, those of forwards that were worked out again among them."""
    kept: Counter[str]
    """Bytes that a leaf is the first to save for the backward pass, parameters and buffers left out."""


def walk(model: nn.Module, inputs: tuple[Tensor, ...]) -> Walked:
    """One forward of `model` and the backward pass of the sum of its answers."""
    return _Walk(model).walked(model, inputs)


class _Walk(TorchDispatchMode):
    """Counts the products that run, each for the leaf that runs it or whose gradient it is; and what is saved."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.macs: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self._saving = True
        self._paused = False
        self._stores = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}  # noqa: SLF001
        self._held: list[Any] = []  # alive until all are counted: a storage's identity is free again when it dies
        self._running: list[str] = [""]
        # autograd numbers its steps as they are made: from which number on they are whose
        self._firsts: list[int] = []
        self._makers: list[str] = []

    def walked(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> Walked:
        """One forward, one backward."""
        hooks = torch.autograd.graph.saved_tensors_hooks(self._save, lambda tensor: tensor)
        with (
            self._watching(model),
            KernelOnMeta(products=True),
            in_few_steps(self._few_steps),
            self,
            torch.enable_grad(),
        ):
            with hooks:
                outputs = model(*inputs)
            self._saving = False
            forward, self.macs = self.macs, Counter()
            answers = [one for one in tree_iter(outputs) if isinstance(one, Tensor) and one.requires_grad]
            torch.autograd.backward(answers, [torch.empty_like(one) for one in answers])
        return Walked(forward, self.macs, self.kept)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        packet = func.overloadpacket
        if self._paused:
            return result
        if packet in MENDED:
            self.macs[self._whose()] += MENDED[packet](*args, **given) // FLOPS_PER_MAC
        elif packet in flop_registry:
            self.macs[self._whose()] += flop_registry[packet](*args, **given, out_val=result) // FLOPS_PER_MAC
        return result

    def _whose(self) -> str:
        """The leaf that runs, else the one that made the step of autograd that runs."""
        node = torch._C._current_autograd_node()  # noqa: SLF001 - torch has no public name for it
        if self._running[-1] or node is None:
            return self._running[-1]
        at = bisect_right(self._firsts, node._sequence_nr()) - 1  # noqa: SLF001
        return self._makers[at] if at >= 0 else ""

    def _save(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if self._saving and storage._cdata not in self._stores:  # noqa: SLF001 - the storage's identity
            self._stores.add(storage._cdata)  # noqa: SLF001
            self._held.append(storage)
            self.kept[self._running[-1]] += storage.nbytes()
        return tensor

    @contextmanager
    def _watching(self, model: nn.Module) -> Iterator[None]:
        """Know which leaf runs; what a reversible run keeps, it keeps outside its leaves."""
        handles = []
        for name, module in model.named_modules():
            if next(module.children(), None) is None or isinstance(module, ReversibleRun):
                handles.append(module.register_forward_pre_hook(self._entering(name)))
                handles.append(module.register_forward_hook(self._leaving))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, name: str) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            self._running.append(name)
            self._mark()

        return hook

    def _leaving(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._running.pop()
        self._mark()

    def _mark(self) -> None:
        self._firsts.append(torch._C._autograd._get_sequence_nr())  # noqa: SLF001
        self._makers.append(self._running[-1])

    def _few_steps(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A loop over tokens as one step of autograd, which costs what a few of its steps say that all of them do."""
        steps = args[0].shape[1]
        if args[0].ndim != _TOKENS_RANK or steps <= _FEW + 1:
            return loop(*args)
        before = frozenset(self._stores)
        fewer, more = (self._apart(loop, args, number, before) for number in (_FEW, _FEW + 1))
        forward, backward, kept = (a + (b - a) * (steps - _FEW) for a, b in zip(fewer, more, strict=True))
        self.macs[self._running[-1]] += forward
        self.kept[self._running[-1]] += kept if self._saving else 0
        return _Loop.apply(self, backward, lambda: shapes(*args), *args)

    def _apart(
        self, loop: Callable[..., Any], args: tuple[Any, ...], steps: int, kept: frozenset[int]
    ) -> tuple[int, int, int]:
        """MACs forwards and backwards and kept bytes of a loop's first `steps` steps, walked by themselves."""
        apart = _Walk(nn.Identity())
        apart._stores |= kept
        self._paused = True
        try:
            whole = apart.walked(_Called(loop), tuple(_shortened(arg, steps) for arg in args))
        finally:
            self._paused = False
        if self._saving:  # the loop's own arguments are kept whole, by the loop
            given = {arg.untyped_storage()._cdata for arg in args if isinstance(arg, Tensor)}  # noqa: SLF001
            self._stores |= given & apart._stores
        return sum(whole.forward.values()), sum(whole.backward.values()), sum(whole.kept.values())

    def looped_back(self, macs: int) -> None:
        """The backward pass of such a loop."""
        self.macs[self._whose()] += macs


class _Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _shortened(arg: Any, steps: int) -> Any:
    """The first tokens of (B, N, …); what has no tokens (weights, states) as it is."""
    if not isinstance(arg, Tensor):
        return arg
    part = arg.narrow(1, 0, steps) if arg.ndim == _TOKENS_RANK else arg
    return part.detach().requires_grad_(arg.requires_grad)


class _Loop(Function):
    """A loop's shapes, and the count of its backward pass."""

    @staticmethod
    def forward(ctx: Any, walk: _Walk, backward: int, shapes: Callable[[], Any], *args: Any) -> Any:
        ctx.walk, ctx.backward, ctx.args = walk, backward, args
        return shapes()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        ctx.walk.looped_back(ctx.backward)
        asked = (torch.empty_like(arg) if isinstance(arg, Tensor) and arg.requires_grad else None for arg in ctx.args)
        return None, None, None, *asked
