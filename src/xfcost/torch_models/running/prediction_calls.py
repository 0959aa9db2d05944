"""The ATen calls of a run by what decides how long they take: operation, layouts of tensors, a few options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from xfcost.torch_models.running.costs import is_free
from xfcost.torch_models.running.record import ATTENTION, RecordedCall, RunRecord, TensorRecord
from xfcost.torch_models.shared.private_torch import schema_of

Place = TypeVar("Place", bound=Hashable)
FUSED_ATTENTION: Final = "xfcost.scaled_dot_product_attention"
FLASH_ATTENTION: Final = "aten._scaled_dot_product_flash_attention_for_cpu"
"""What fused attention runs on the CPU where a gradient is needed."""
# Arguments that decide how an operation runs.
_CONVOLUTION: Final = ("stride", "padding", "dilation", "transposed", "groups")
_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "aten.convolution": _CONVOLUTION,
    "aten.convolution_backward": (*_CONVOLUTION, "output_mask"),
    FLASH_ATTENTION: ("is_causal",),
    f"{FLASH_ATTENTION}_backward": ("is_causal",),
    "aten.index": ("indices",),
    "aten.max_pool2d_with_indices": ("kernel_size",),
    "aten.max_pool3d_with_indices": ("kernel_size",),
    "aten.avg_pool2d": ("kernel_size",),
}
INDICES: Final = "indices"
"""Stands for a tensor among the options of a call: one that an axis is indexed by."""


class Layout(NamedTuple):
    """A tensor without its values."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class LayoutCall(NamedTuple):
    """An ATen call: equal calls take equally long."""

    operation: str
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    options: tuple[Any, ...] = ()

    @property
    def computes(self) -> bool:
        """Has it tensors? A profiler's mark has none."""
        return bool(self.inputs or self.outputs)


class StepCalls(NamedTuple):
    """Calls, and how often each ran."""

    calls: Counter[LayoutCall]
    views: int


def layout_call(call: RecordedCall) -> LayoutCall | None:
    """A recorded call by its layouts; None of one that only makes another view of a tensor."""
    inputs, outputs = (tuple(map(_layout, tensors)) for tensors in (call.inputs, call.outputs))
    if call.operation == ATTENTION:
        return LayoutCall(FUSED_ATTENTION, inputs, outputs, (bool(call.kwargs.get("is_causal", False)),))
    packet = getattr(call.func, "overloadpacket", None)
    if packet is None:  # a higher-order operator
        return LayoutCall(str(call.func), inputs, outputs)
    name = str(packet)
    if is_free(call.func):
        return None
    options = tuple(_hashable(_argument(call, one)) for one in _OPTIONS.get(name, ()))
    return LayoutCall(name, inputs, outputs, options)


def _layout(tensor: TensorRecord) -> Layout:
    if tensor.is_nested:
        raise TypeError("a nested tensor has rows of several sizes")
    return Layout(tuple(tensor.shape), tensor.strides, str(tensor.dtype).removeprefix("torch."))


def _argument(call: RecordedCall, name: str) -> Any:
    """An argument by its name; trailing ones that are as their defaults are left out of a call."""
    declared = {one.name: (place, one) for place, one in enumerate(schema_of(call.func).arguments)}
    place, one = declared[name]
    return call.args[place] if place < len(call.args) else call.kwargs.get(name, one.default_value)


def _hashable(value: Any) -> Any:
    if isinstance(value, TensorRecord):
        return INDICES
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def every_layout(run: RunRecord) -> Iterator[tuple[RecordedCall, LayoutCall | None, int]]:
    """Every call of a run, its layouts (None: a view), and how often it ran; of loops the calls of all steps."""
    for call in run.dispatched():
        if call.steps is not None:
            yield from ((call, one, times) for one, times in call.steps.calls.items())
            yield call, None, call.steps.views
        elif call.func is not None:
            yield call, layout_call(call), 1


def calls_by_place(
    run: RunRecord, place_of: Callable[[RecordedCall], Place]
) -> tuple[Counter[tuple[Place, LayoutCall]], Counter[Place]]:
    """The calls of a run by place, and those that only make another view of a tensor."""
    calls: Counter[tuple[Place, LayoutCall]] = Counter()
    views: Counter[Place] = Counter()
    for call, layouts, times in every_layout(run):
        if layouts is None:
            views[place_of(call)] += times
        elif layouts.computes:
            calls[place_of(call), layouts] += times
    return calls, views


def calls_of(run: RunRecord) -> tuple[StepCalls, StepCalls]:
    """The calls of a forward, and of a backward pass."""
    calls, views = calls_by_place(run, lambda call: call.phase == "forward")
    found = StepCalls(Counter(), views[True]), StepCalls(Counter(), views[False])
    for (is_forward, call), times in calls.items():
        found[not is_forward].calls[call] = times
    return found


def in_all_steps(fewer: StepCalls, more: StepCalls, numbers: tuple[int, int], steps: int) -> StepCalls:
    """The calls of a loop over `steps` tokens, from those over fewer and over more."""
    few = numbers[0]

    def linear(first: int, second: int) -> int:
        return first + (second - first) * (steps - few) // (numbers[1] - few)

    calls: Counter[LayoutCall] = Counter()
    for call, times in fewer.calls.items():
        if call in more.calls:
            calls[call] += linear(times, more.calls[call])
    # the others have other sizes or strides: they are on all tokens at once, or on parts of them
    first, second = Counter[LayoutCall](), Counter[LayoutCall]()
    for whole, found, other, number in ((first, fewer, more, few), (second, more, fewer, numbers[1])):
        for call, times in found.calls.items():
            if call not in other.calls:
                whole[_longer(call, number, steps)] += times
    for call, times in second.items():
        calls[call] += linear(first.get(call, times), times)
    return StepCalls(calls, linear(fewer.views, more.views))


def _longer(call: LayoutCall, few: int, steps: int) -> LayoutCall:
    def longer(one: Layout) -> Layout:
        sizes = tuple(steps if size == few else size for size in one.sizes)
        strides = tuple(stride if stride % few else stride // few * steps for stride in one.strides)
        return Layout(sizes, strides, one.dtype)

    def all_of(tensors: Sequence[Layout]) -> tuple[Layout, ...]:
        return tuple(map(longer, tuple(tensors[:1]) * steps if len(tensors) == few else tensors))

    return call._replace(inputs=all_of(call.inputs), outputs=all_of(call.outputs))
