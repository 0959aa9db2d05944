"""Long loops over tokens on `meta`: a few of their equal steps run, and stand for all.

A loop of (B, N, …) tensors runs over `_FEW` and over `_MORE` tokens. What the two differ by is what further steps add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from xfcost.formulas.contractions import Costs
from xfcost.ledger.record import SavedStorage
from xfcost.torch_models.running.prediction_calls import StepCalls, calls_of, in_all_steps
from xfcost.torch_models.shared.experts import evenly, grouped_linear
from xfcost.torch_models.shared.private_torch import disable_current_modes, next_node, pytree

if TYPE_CHECKING:
    from xfcost.torch_models.running.recorder import Recorder

# Longer loops run a few steps.
MOST_STEPS: Final = 64
# Primes, which are no size of anything else.
_FEW: Final = 17
_MORE: Final = 19
_TOKENS_RANK: Final = 3


class _Loop(NamedTuple):
    """What the steps of a loop do."""

    costs: Costs
    backward_macs: int
    saved_bytes: int
    """Of what the loop makes."""
    saves: list[int]
    """The arguments that it saves."""
    calls: tuple[StepCalls, ...] | None
    """Forward and backward, for a prediction."""
    results: Any
    """Of a few steps: as its results lie in memory."""
    gradients: list[Tensor | None]


def extrapolated(
    recorder: Recorder, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """The result of a loop on `meta`, whose steps are recorded: all, or of many a few that stand for all."""
    if loop is grouped_linear and recorder.for_prediction:
        return evenly(*args)
    if args[0].ndim != _TOKENS_RANK or args[0].shape[1] <= MOST_STEPS:
        return loop(*args)
    trained = torch.is_grad_enabled() and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
    key = (loop, trained, _layouts(args))
    if key not in recorder.loops:
        recorder.loops[key] = _all_steps(recorder, loop, args, trained=trained)
    found: _Loop = recorder.loops[key]
    name = f"xfcost::{loop.__name__}"

    def gradients() -> list[Tensor | None]:
        recorder.note(f"{name}_backward", Counter(macs=found.backward_macs), found.calls and found.calls[1])
        empty = [torch.empty_like(arg) if isinstance(arg, Tensor) and arg.requires_grad else None for arg in args]
        return [_laid_out(*each) for each in zip(empty, found.gradients, strict=True)]

    with disable_current_modes():
        made = lambda: _laid_out(shapes(*args), found.results)  # noqa: E731 - what the node takes
        result = _LoopNode.apply(gradients, made, *args) if trained else made()
    recorder.note(name, found.costs, found.calls and found.calls[0], args, result)
    for place in found.saves:
        recorder.save(args[place])
    if found.saved_bytes:
        recorder.run.saved.append(SavedStorage(None, found.saved_bytes, recorder.running[-1], next_node() - 1))
    return result


def _layouts(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What decides how a loop runs; equal numbers for the same tensor."""
    first = {id(arg): place for place, arg in reversed([*enumerate(args)])}
    return tuple(
        (arg.shape, arg.stride(), arg.dtype, arg.requires_grad, first[id(arg)]) if isinstance(arg, Tensor) else arg
        for arg in args
    )


def _all_steps(recorder: Recorder, loop: Callable[..., Any], args: tuple[Any, ...], *, trained: bool) -> _Loop:
    steps = args[0].shape[1]
    recorder.paused = True
    try:
        with disable_current_modes():
            few, more = (_first_steps(recorder, loop, args, number, trained=trained) for number in (_FEW, _MORE))
    finally:
        recorder.paused = False

    def linear(fewer: int, further: int) -> int:
        return fewer + (further - fewer) * (steps - _FEW) // (_MORE - _FEW)

    pairs = zip(few.calls or (), more.calls or (), strict=True)
    names = few.costs.keys() | more.costs.keys()
    return more._replace(
        costs=Counter({name: linear(few.costs[name], more.costs[name]) for name in names}),
        backward_macs=linear(few.backward_macs, more.backward_macs),
        saved_bytes=linear(few.saved_bytes, more.saved_bytes),
        calls=tuple(in_all_steps(*each, (_FEW, _MORE), steps) for each in pairs) or None,
    )


def _first_steps(
    recorder: Recorder, loop: Callable[..., Any], args: tuple[Any, ...], steps: int, *, trained: bool
) -> _Loop:
    """The gradient comes from the first output only: the others are mostly left unused."""
    inner = recorder.another()
    first = [_first_tokens(arg, steps) for arg in args]
    gradients: list[Tensor | None] = [None] * len(args)
    with inner.modes(), inner.saving() if recorder.is_saving else nullcontext():
        results = loop(*first)
    if trained:
        inner.phase = "backward"
        output = pytree.tree_leaves(results)[0]
        learned = [arg for arg in first if isinstance(arg, Tensor) and arg.requires_grad]
        gradient = torch.empty_like(output)
        with inner.modes():
            found = iter(torch.autograd.grad(output, learned, gradient, allow_unused=True))
        gradients = [next(found) if isinstance(arg, Tensor) and arg.requires_grad else None for arg in first]
    costs: Costs = Counter()
    backward = 0
    for call in inner.run.calls:
        if call.costs is None:
            recorder.run.missing[call.operation] += 1
        elif call.phase == "forward":
            costs.update(call.costs)
        else:
            backward += call.costs["macs"]
    recorder.run.missing.update(inner.run.missing)
    own = {inner.storage(arg): place for place, arg in enumerate(args) if isinstance(arg, Tensor)}
    kept = list(inner.run.first_saved())
    saved_bytes = sum(one.nbytes for one in kept if one.storage not in own)
    saves = [own[one.storage] for one in kept if one.storage in own]
    calls = calls_of(inner.run) if inner.for_prediction else None
    return _Loop(costs, backward, saved_bytes, saves, calls, results, gradients)


def _first_tokens(arg: Any, steps: int) -> Any:
    """The first tokens of (B, N, …). Tensors without tokens (weights, states) keep their sizes."""
    if not isinstance(arg, Tensor):
        return arg
    part = arg.narrow(1, 0, steps) if arg.ndim == _TOKENS_RANK else arg
    return part.detach().requires_grad_(arg.requires_grad)


def _laid_out(tensors: Any, like: Any) -> Any:
    """Tensors on `meta` whose axes lie in memory in the order of those of others."""

    def one(tensor: Any, other: Any) -> Any:
        if not isinstance(tensor, Tensor) or not isinstance(other, Tensor):
            return tensor
        strides = other.stride()
        order = sorted(range(other.ndim), key=lambda axis: -strides[axis])
        return torch.empty_permuted(tensor.shape, order, dtype=tensor.dtype, device="meta")

    return pytree.tree_map(one, tensors, like)


class _LoopNode(Function):
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
