"""The ATen calls of a run: what each computes on, how often it runs in which module, and how long it takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from xfcost.torch_models.predicting.call import Call, Layout
from xfcost.torch_models.predicting.loops import FEW, MORE, Work, in_all_steps, laid_out
from xfcost.torch_models.shared.experts import evenly, grouped_linear
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.running_modules import running_modules
from xfcost.torch_models.tracing.dispatch import first_tokens, runs_whole

Clock = Callable[[], float]

FUSED_ATTENTION: Final = "xfcost.scaled_dot_product_attention"
FLASH_ATTENTION: Final = "aten._scaled_dot_product_flash_attention_for_cpu"
"""What fused attention runs on the CPU where a gradient is needed."""
# Calls that return their input's memory, although their schema does not say so; and one that asks where a tensor is.
_FREE: Final = frozenset(("aten._unsafe_view", "aten.lift_fresh", "aten.detach", "prim.device"))
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
# On the CPU their first result is contiguous, also where the input is not.
_DENSE: Final = frozenset(
    ("aten.native_batch_norm", "aten.native_batch_norm_backward", "aten.native_layer_norm_backward")
)
_IMAGE: Final = 4  # axes: batch, channels, height, width
_NUMBER: Final = "aten._local_scalar_dense"
INDICES: Final = "indices"
"""Stands for a tensor among the options of a call: one that an axis is indexed by."""


class Recorded(NamedTuple):
    """The calls of a run."""

    calls: dict[tuple[str, Call], int]
    """(module path, call) -> how often it ran."""
    views: Counter[str]
    """Module path -> calls that only make another view of a tensor."""
    modules: Counter[str]
    """Module path -> how often it was called."""
    seconds: dict[Call, list[float]]
    """Of a run with a clock."""


def recorded(
    model: nn.Module,
    inputs: tuple[Any, ...],
    clock: Clock | None = None,
    times: int = 1,
    before: Callable[[], object] | None = None,
) -> Recorded:
    """The calls of `model(*inputs)`; with a `clock` its real tensors are run `times` times, and every call is timed.

    `before` is called before each run, and is not recorded.
    """
    recorder = Recorder(clock)
    with counted_modules(model, recorder), ExitStack() as stack:
        if clock is None:
            stack.enter_context(in_few_steps(recorder.loop))
        stack.enter_context(torch.no_grad())
        for context in (FusedAttention(recorder), recorder):
            stack.enter_context(context)
        for _ in range(times):
            if before is not None:
                with _disable_current_modes():
                    before()
            model(*inputs)
    return recorder.result(times)


class Recorder(TorchDispatchMode):
    """Counts calls by running module; with a clock, times each."""

    def __init__(self, clock: Clock | None) -> None:
        super().__init__()
        self.clock = clock
        self.running: list[str] = [""]
        self.counts: Counter[tuple[str, Call]] = Counter()
        self.views: Counter[str] = Counter()
        self.modules: Counter[str] = Counter()
        self.seconds: dict[Call, list[float]] = defaultdict(list)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch would import its compiler, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        found = kernel_of(func, args, given)
        if found is None:
            self.views[self.running[-1]] += 1
            return func(*args, **given)
        name, options = found
        if name == _NUMBER and args[0].is_meta:  # there is no number to read
            return self.count(name, args, lambda: 1.0)
        return self.count(name, (args, given), lambda: as_on_cpu(name, args, func(*args, **given)), options)

    def count(self, name: str, tensors: Any, run: Callable[[], Any], options: tuple[Any, ...] = ()) -> Any:
        """Run one call, and note it with its time."""
        started = self.clock() if self.clock else 0.0
        result = run()
        spent = self.clock() - started if self.clock else 0.0
        call = Call(name, layouts(tensors), layouts(result), options)
        if call.inputs or call.outputs:  # else nothing is computed: a profiler's mark
            self.counts[self.running[-1], call] += 1
            if self.clock:
                self.seconds[call].append(spent)
        return result

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Note a loop over tokens on `meta`: all steps, or of very many a few, the others alike."""
        if loop is grouped_linear:
            return evenly(*args)
        if runs_whole(args):
            return loop(*args)
        fewer, more = (self._first_steps(loop, args, number) for number in (FEW, MORE))
        self.add(in_all_steps(fewer[0], more[0], args[0].shape[1]))
        with _disable_current_modes():
            return laid_out(shapes(*args), more[1])

    def _first_steps(self, loop: Callable[..., Any], args: tuple[Any, ...], steps: int) -> tuple[Work, Any]:
        inner = Recorder(None)
        with _disable_current_modes():
            first = [first_tokens(arg, steps) for arg in args]
            with inner:
                result = loop(*first)
        return inner.work(""), result

    def work(self, place: str) -> Work:
        """The calls of one module."""
        return Work(
            Counter({call: times for (one, call), times in self.counts.items() if one == place}), self.views[place]
        )

    def add(self, work: Work) -> None:
        """Note calls that were recorded apart."""
        here = self.running[-1]
        self.views[here] += work.views
        for call, times in work.calls.items():
            self.counts[here, call] += times

    def result(self, times: int) -> Recorded:
        """The calls of one run of `times`."""
        counts = {key: -(-number // times) for key, number in self.counts.items()}
        views, modules = (
            Counter({name: -(-number // times) for name, number in one.items()}) for one in (self.views, self.modules)
        )
        return Recorded(counts, views, modules, dict(self.seconds))


class Counts(Protocol):
    """Notes calls."""

    def count(self, name: str, tensors: Any, run: Callable[[], Any], options: tuple[Any, ...] = ()) -> Any:
        """Run one call, and note it."""


class FusedAttention(TorchFunctionMode):
    """Fused attention is one call on every device; on `meta` torch would run its parts."""

    def __init__(self, recorder: Counts) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **given)
        causal = bool(given.get("is_causal", False))

        def run() -> Any:
            with _disable_current_modes():
                if not args[0].is_meta:
                    return func(*args, **given)
                return args[0].new_empty(*args[0].shape[:-1], args[2].shape[-1])

        return self.recorder.count(FUSED_ATTENTION, (args, given), run, (causal,))


def as_on_cpu(name: str, args: Sequence[Any], result: Any) -> Any:
    """Results on `meta` in the memory format of the CPU, where torch's own shape formulas have another."""
    if name == "aten.softplus_backward" and result.is_meta:
        return torch.empty_like(args[0])
    if name not in _DENSE or not isinstance(result[0], Tensor) or not result[0].is_meta:
        return result
    first = result[0]
    last = first.ndim == _IMAGE and first.is_contiguous(memory_format=torch.channels_last)
    memory_format = torch.channels_last if last and not first.is_contiguous() else torch.contiguous_format
    return torch.empty(first.shape, dtype=first.dtype, device="meta", memory_format=memory_format), *result[1:]


@contextmanager
def counted_modules(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Tell the recorder which module is running, and count its calls."""

    def counting(name: str) -> Callable[[nn.Module, Any], None]:
        def count(module: nn.Module, inputs: Any) -> None:
            recorder.modules[name] += 1

        return count

    with running_modules(model, recorder.running), ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(counting(name)).remove)
        yield


class Kernel(NamedTuple):
    """What a call runs, whatever it runs on."""

    operation: str
    options: tuple[Any, ...]


def kernel_of(func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Kernel | None:
    """The kernel of a call; None of one that only makes another view of a tensor."""
    packet = getattr(func, "overloadpacket", None)
    if packet is None:  # a higher-order operator
        return Kernel(str(func), ())
    name = str(packet)
    if name in _FREE or _is_view(func):
        return None
    return Kernel(name, tuple(_hashable(_argument(func, one, args, given)) for one in _OPTIONS.get(name, ())))


def loop_calls(loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Recorded]:
    """The result of a long loop over tokens on `meta`, and its calls."""
    recorder = Recorder(None)
    return recorder.loop(loop, shapes, args), recorder.result(1)


def _is_view(func: Any) -> bool:
    """Does a result of `func` share an argument's memory, unwritten?"""
    return any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)  # noqa: SLF001


def _argument(func: Any, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """An argument by its name; trailing ones that are as their defaults are left out of a call."""
    declared = {one.name: (place, one) for place, one in enumerate(func._schema.arguments)}  # noqa: SLF001
    place, one = declared[name]
    return args[place] if place < len(args) else given.get(name, one.default_value)


def layouts(tree: Any) -> tuple[Layout, ...]:
    """The layouts of the tensors in a structure."""
    return tuple(_layout(tensor) for tensor in _tensors(tree))


def _tensors(tree: Any) -> Iterable[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _layout(tensor: Tensor) -> Layout:
    return Layout(tuple(tensor.shape), _strides(tensor), str(tensor.dtype).removeprefix("torch."))


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """As it lies in memory; of a sparse one as if it were dense."""
    dense = tensor if tensor.layout is torch.strided else torch.empty(tensor.shape, device="meta")
    return tuple(dense.stride())


def _hashable(value: Any) -> Any:
    if isinstance(value, Tensor):
        return INDICES
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
