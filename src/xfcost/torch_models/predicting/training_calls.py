"""The ATen calls of a training step: forward, backward, and the optimizer's update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.calls import Clock, Recorded, Recorder, counted_modules
from xfcost.torch_models.predicting.loops import FEW, MORE, Work, in_all_steps, laid_out
from xfcost.torch_models.shared.private_torch import aten_operation, disable_current_modes, pytree
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.timing.backward import NodeMakers, nodes_entered
from xfcost.torch_models.timing.subjects import UPDATE
from xfcost.torch_models.tracing.backward import LoopNode, empty_gradients
from xfcost.torch_models.tracing.dispatch import first_tokens, runs_whole
from xfcost.torch_models.tracing.kernels import NumbersOnMeta, attention_operands
from xfcost.torch_models.tracing.rows import row_path
from xfcost.torch_models.tracing.saved_activations import differentiate

OUTSIDE: Final = ""
"""Stands for the row of what runs outside all rows."""
_NODE: Final = "node"
_RANK: Final = 4  # of queries, keys and values: batch, heads, tokens, width


def recorded_step(
    live: BuiltModel,
    stepping: Stepping,
    clock: Clock | None = None,
    times: int = 1,
    before: Callable[[], object] | None = None,
) -> Recorded:
    """The calls of a step by row (not by module); those of the optimizer stand under `update`.

    With a `clock` real tensors are computed, and every call is timed; `before` is called before each run. A call of the
    backward pass belongs to the row that made its autograd node.
    """
    forward, backward = _StepRecorder(clock), _StepRecorder(clock)
    forward.backward = backward.backward = backward
    with counted_modules(live.model, forward), ExitStack() as stack:
        if clock is None:
            stack.enter_context(_FlashAttentionOnMeta())
        if not stepping.optimizer.state:
            _make_states(stepping)
        for _ in range(times if clock is None else times + 1):
            if before is not None:
                before()
            _step(live, stepping, forward, backward)
            for recorder in (forward, backward):
                recorder.end_run()
    return _by_row(forward.result(), backward.result(), live.rows)


def _step(live: BuiltModel, stepping: Stepping, forward: _StepRecorder, backward: _StepRecorder) -> None:
    makers = NodeMakers(live)
    with forward, in_few_steps(forward.loop), makers.watching():
        loss = stepping.forward()
    with nodes_entered(loss, makers.path, backward.enter, backward.leave), backward, in_few_steps(backward.loop):
        differentiate(loss)
    del loss
    backward.enter(UPDATE)
    with backward:
        stepping.update()
    backward.leave(UPDATE)


def _make_states(stepping: Stepping) -> None:
    """Let the optimizer make its states, as the first step of many does."""
    for parameter in stepping.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with NumbersOnMeta():
        stepping.update()


def _by_row(forward: Recorded, backward: Recorded, rows: Mapping[str, str]) -> Recorded:
    """Both by row; the first is by module."""

    def row(module: str) -> str:
        return row_path(module, rows) or OUTSIDE

    calls: Counter[Any] = Counter(backward.calls)
    for (module, call), number in forward.calls.items():
        calls[row(module), call] += number
    views, modules = Counter(backward.views), Counter(backward.modules)
    for each, found in ((views, forward.views), (modules, forward.modules)):
        for module, number in found.items():
            each[row(module)] += number
    seconds = {call: list(spent) for call, spent in forward.seconds.items()}
    for call, spent in backward.seconds.items():
        seconds.setdefault(call, []).extend(spent)
    return Recorded(dict(calls), views, modules, seconds)


class _StepRecorder(Recorder):
    """Records loops over tokens with their backward pass."""

    backward: _StepRecorder
    """Records the backward pass of what is recorded here."""

    def enter(self, row: str) -> None:
        """What follows belongs to a row."""
        self.running.append(row)

    def leave(self, row: str) -> None:
        """It does no longer."""
        self.running.pop()

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Note a loop over tokens; its backward pass is noted when that runs."""
        if runs_whole(args) or not torch.is_grad_enabled():
            return super().loop(loop, shapes, args)
        steps = args[0].shape[1]
        with disable_current_modes():
            fewer, more = (_first_steps(loop, shapes(*args), args, number) for number in (FEW, MORE))
            self.add(in_all_steps(fewer.forward, more.forward, steps))
            inside, between = (in_all_steps(*each, steps) for each in zip(fewer.backward, more.backward, strict=True))

            def gradients() -> list[Tensor | None]:
                self.backward.add(inside)
                self.backward.enter(OUTSIDE)
                self.backward.add(between)
                self.backward.leave(OUTSIDE)
                return [laid_out(*each) for each in zip(empty_gradients(args), more.gradients, strict=True)]

            return LoopNode.apply(gradients, lambda: laid_out(shapes(*args), more.outputs), *args)


class _Steps(NamedTuple):
    """The first steps of a loop, forward and backward."""

    forward: Work
    backward: tuple[Work, Work]
    """The calls of autograd nodes, and those between nodes: sums of gradients."""
    outputs: Any
    gradients: list[Tensor | None]


def _first_steps(loop: Callable[..., Any], shapes: Any, args: tuple[Any, ...], steps: int) -> _Steps:
    """The gradient comes from the first output alone: the others are mostly left unused."""
    first = [_alone(first_tokens(arg, steps)) for arg in args]
    forward, backward = Recorder(None), _StepRecorder(None)
    with forward:
        outputs = loop(*first)
    output, whole = pytree.tree_leaves(outputs)[0], pytree.tree_leaves(shapes)[0]
    learned = [arg for arg in first if isinstance(arg, Tensor) and arg.requires_grad]
    gradient = first_tokens(laid_out(whole, output), steps)
    with nodes_entered(output, lambda node: _NODE, backward.enter, backward.leave), backward:
        found = iter(torch.autograd.grad(output, learned, gradient, allow_unused=True))
    gradients = [next(found) if isinstance(arg, Tensor) and arg.requires_grad else None for arg in first]
    return _Steps(forward.work(""), (backward.work(_NODE), backward.work("")), outputs, gradients)


def _alone(arg: Any) -> Any:
    """A tensor without what it was computed from."""
    return arg.detach().requires_grad_(arg.requires_grad) if isinstance(arg, Tensor) else arg


class _FlashAttentionOnMeta(TorchFunctionMode):
    """On `meta` torch takes fused attention apart; here it is the kernel that the CPU runs, of which shapes are known.

    The CPU too takes apart what its kernel does not do.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **given)
        operands = attention_operands(args, given)
        q, k, v, mask = *(operands[name] for name in ("query", "key", "value")), operands.get("attn_mask")
        if not q.is_meta or not _has_kernel(q, k, v, mask, operands.get("dropout_p", 0.0)):
            return func(*args, **given)
        kernel = aten_operation("_scaled_dot_product_flash_attention_for_cpu")
        return kernel(q, k, v, 0.0, operands.get("is_causal", False), attn_mask=mask, scale=operands.get("scale"))[0]


def _has_kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Does the CPU compute such attention, with a gradient, in one kernel?"""
    alike = q.ndim == k.ndim == v.ndim == _RANK and q.shape[0] == k.shape[0] == v.shape[0]
    dense = all(one.stride(-1) == 1 and one.numel() for one in (q, k, v))
    masked = mask is None or (mask.dtype is not torch.bool and not mask.requires_grad and mask.ndim in (2, _RANK))
    return alike and dense and masked and q.shape[-1] == k.shape[-1] == v.shape[-1] and not dropout
