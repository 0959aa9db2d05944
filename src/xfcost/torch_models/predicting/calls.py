"""The ATen calls of a run: what each computes on, how often it runs in which module, and how long it takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.running_modules import running_modules
from xfcost.torch_models.tracing.dispatch import MOST_STEPS, first_tokens

Clock = Callable[[], float]

FUSED_ATTENTION: Final = "xfcost.scaled_dot_product_attention"
_FEW: Final = 13
# Calls that return their input's memory, although their schema does not say so.
_FREE: Final = frozenset(("aten._unsafe_view", "aten.lift_fresh", "aten.detach"))
# Arguments that decide how an operation runs, by their place.
_OPTIONS: Final[dict[str, tuple[int, ...]]] = {
    "aten.convolution": (3, 4, 5, 6, 8),
    "aten.index": (1,),
    "aten.max_pool2d_with_indices": (1,),
    "aten.max_pool3d_with_indices": (1,),
    "aten.avg_pool2d": (1,),
}
INDICES: Final = "indices"
"""Stands for a tensor among the options of a call: one that an axis is indexed by."""


class Layout(NamedTuple):
    """A tensor without its values."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Call(NamedTuple):
    """An ATen call: equal calls take equally long."""

    operation: str
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    options: tuple[Any, ...] = ()


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
    recorder = _Recorder(clock)
    with _counted_modules(model, recorder), ExitStack() as stack:
        if clock is None:
            stack.enter_context(in_few_steps(recorder.loop))
        stack.enter_context(torch.no_grad())
        for context in (_FusedAttention(recorder), recorder):
            stack.enter_context(context)
        for _ in range(times):
            if before is not None:
                with _disable_current_modes():
                    before()
            model(*inputs)
    return recorder.result(times)


class _Recorder(TorchDispatchMode):
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
        name, given = str(func.overloadpacket), kwargs or {}
        if name in _FREE or _is_view(func):
            self.views[self.running[-1]] += 1
            return func(*args, **given)
        options = tuple(_hashable(args[place]) for place in _OPTIONS.get(name, ()))
        return self.count(name, (args, given), lambda: func(*args, **given), options)

    def count(self, name: str, tensors: Any, run: Callable[[], Any], options: tuple[Any, ...] = ()) -> Any:
        """Run one call, and note it with its time."""
        started = self.clock() if self.clock else 0.0
        result = run()
        spent = self.clock() - started if self.clock else 0.0
        call = Call(name, _layouts(tensors), _layouts(result), options)
        self.counts[self.running[-1], call] += 1
        if self.clock:
            self.seconds[call].append(spent)
        return result

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Note a loop over tokens on `meta`: all steps, or of very many a few, the others alike."""
        steps, here = args[0].shape[1], self.running[-1]
        if steps <= MOST_STEPS:
            return loop(*args)
        fewer, more = (self._first_steps(loop, args, number) for number in (_FEW, _FEW + 1))
        self.views[here] += fewer.views[""] + (more.views[""] - fewer.views[""]) * (steps - _FEW)
        with _disable_current_modes():
            for (_, call), times in more.counts.items():
                before = fewer.counts["", call]
                if before:
                    self.counts[here, call] += before + (times - before) * (steps - _FEW)
                else:  # a call on all tokens at once
                    self.counts[here, _over_all(call, steps)] += times
            return shapes(*args)

    def _first_steps(self, loop: Callable[..., Any], args: tuple[Any, ...], steps: int) -> _Recorder:
        inner = _Recorder(None)
        with _disable_current_modes():
            first = [first_tokens(arg, steps) for arg in args]
            with inner:
                loop(*first)
        return inner

    def result(self, times: int) -> Recorded:
        """The calls of one run of `times`."""
        counts = {key: -(-number // times) for key, number in self.counts.items()}
        views, modules = (
            Counter({name: -(-number // times) for name, number in one.items()}) for one in (self.views, self.modules)
        )
        return Recorded(counts, views, modules, dict(self.seconds))


class _FusedAttention(TorchFunctionMode):
    """Fused attention is one call on every device; on `meta` torch would run its parts."""

    def __init__(self, recorder: _Recorder) -> None:
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


def _over_all(call: Call, steps: int) -> Call:
    """A call on the tokens of one step more than a few, as it is on those of all `steps`."""
    few = _FEW + 1

    def longer(one: Layout) -> Layout:
        if few not in one.sizes:
            return one
        return _layout(torch.empty([steps if size == few else size for size in one.sizes], device="meta"), one.dtype)

    inputs = call.inputs
    if len(inputs) == few:  # one tensor per step
        inputs = inputs[:1] * steps
    return call._replace(inputs=tuple(map(longer, inputs)), outputs=tuple(map(longer, call.outputs)))


@contextmanager
def _counted_modules(model: nn.Module, recorder: _Recorder) -> Iterator[None]:
    def counting(name: str) -> Callable[[nn.Module, Any], None]:
        def count(module: nn.Module, inputs: Any) -> None:
            recorder.modules[name] += 1

        return count

    with running_modules(model, recorder.running), ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(counting(name)).remove)
        yield


def _is_view(func: Any) -> bool:
    """Does a result of `func` share an argument's memory, unwritten?"""
    return any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)  # noqa: SLF001


def _layouts(tree: Any) -> tuple[Layout, ...]:
    return tuple(_layout(tensor) for tensor in _tensors(tree))


def _tensors(tree: Any) -> Iterable[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def _layout(tensor: Tensor, dtype: str | None = None) -> Layout:
    return Layout(tuple(tensor.shape), tuple(tensor.stride()), dtype or str(tensor.dtype).removeprefix("torch."))


def _hashable(value: Any) -> Any:
    if isinstance(value, Tensor):
        return INDICES
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
