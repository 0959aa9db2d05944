"""The ATen calls of a run: what each computes on, how often it runs in which module, and how long it takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from xfcost.torch_models.predicting.call import Call
from xfcost.torch_models.predicting.kernel import FUSED_ATTENTION, as_on_cpu, kernel_of, layouts
from xfcost.torch_models.predicting.loops import FEW, MORE, Work, in_all_steps, laid_out
from xfcost.torch_models.shared.experts import evenly, grouped_linear
from xfcost.torch_models.shared.private_torch import TorchDispatchMode, disable_current_modes
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.running_modules import running_modules
from xfcost.torch_models.tracing.dispatch import first_tokens, runs_whole

Clock = Callable[[], float]

_NUMBER: Final = "aten._local_scalar_dense"


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
    """The calls of `model(*inputs)`.

    With a `clock` its real tensors are run `times` times more, and every call is timed. `before` is called before each
    run, and is not recorded.
    """
    recorder = Recorder(clock)
    with counted_modules(model, recorder), ExitStack() as stack:
        if clock is None:
            stack.enter_context(in_few_steps(recorder.loop))
        stack.enter_context(torch.no_grad())
        for context in (FusedAttention(recorder), recorder):
            stack.enter_context(context)
        for _ in range(times if clock is None else times + 1):
            if before is not None:
                with disable_current_modes():
                    before()
            model(*inputs)
            recorder.end_run()
    return recorder.result()


class Recorder(TorchDispatchMode):
    """Counts calls by running module in a first run; with a clock, times them in the following ones.

    In these only a clock stands between two calls. What a first run does there would empty the first caches and let
    the other threads fall asleep: a call of microseconds would take twice as long.
    """

    def __init__(self, clock: Clock | None) -> None:
        super().__init__()
        self.clock = clock
        self.running: list[str] = [""]
        self.counts: Counter[tuple[str, Call]] = Counter()
        self.views: Counter[str] = Counter()
        self.modules: Counter[str] = Counter()
        self.seconds: dict[Call, list[float]] = defaultdict(list)
        self._order: list[Call | None] = []
        self._times: list[float] | None = None
        self._free: dict[Any, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch would import its compiler, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if self._times is not None:
            return self._timed_again(func, args, given, self._times)
        found = kernel_of(func, args, given)
        if found is None:
            self.views[self.running[-1]] += 1
            return func(*args, **given)
        name, options = found
        if name == _NUMBER and args[0].is_meta:  # there is no number to read
            return self.count(name, args, lambda: 1.0)
        return self.count(name, (args, given), lambda: as_on_cpu(name, args, func(*args, **given)), options)

    def _timed_again(self, func: Any, args: Any, given: Any, times: list[float]) -> Any:
        free = self._free.get(func)
        if free is None:
            free = self._free[func] = kernel_of(func, args, given) is None
        return func(*args, **given) if free else self._timed(lambda: func(*args, **given), times)

    def count(self, name: str, tensors: Any, run: Callable[[], Any], options: tuple[Any, ...] = ()) -> Any:
        """Run one call, and note it, or its time."""
        if self._times is not None:
            return self._timed(run, self._times)
        result = run()
        call = Call(name, layouts(tensors), layouts(result), options)
        known = bool(call.inputs or call.outputs)  # else nothing is computed: a profiler's mark
        if known:
            self.counts[self.running[-1], call] += 1
        if self.clock:
            self._order.append(call if known else None)
        return result

    def enter_module(self, name: str) -> None:
        """A module is called."""
        if self._times is None:
            self.modules[name] += 1

    def _timed(self, run: Callable[[], Any], times: list[float]) -> Any:
        clock = self.clock
        if clock is None:
            raise TypeError("calls are timed with a clock")
        started = clock()
        result = run()
        times.append(clock() - started)
        return result

    def end_run(self) -> None:
        """A run is over. With a clock, the following ones are timed.

        Raises:
            RuntimeError: it made other calls than the first.
        """
        if self.clock is None:
            return
        if self._times is not None:
            if len(self._times) != len(self._order):
                raise RuntimeError(f"a run of {len(self._times)} calls after one of {len(self._order)}: not the same")
            for call, spent in zip(self._order, self._times, strict=True):
                if call is not None:
                    self.seconds[call].append(spent)
        self._times = []

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Note a loop over tokens on `meta`: all steps, or of very many a few, the others alike."""
        if loop is grouped_linear:
            return evenly(*args)
        if runs_whole(args):
            return loop(*args)
        fewer, more = (self._first_steps(loop, args, number) for number in (FEW, MORE))
        self.add(in_all_steps(fewer[0], more[0], args[0].shape[1]))
        with disable_current_modes():
            return laid_out(shapes(*args), more[1])

    def _first_steps(self, loop: Callable[..., Any], args: tuple[Any, ...], steps: int) -> tuple[Work, Any]:
        inner = Recorder(None)
        with disable_current_modes():
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

    def result(self) -> Recorded:
        """The calls of one run, with the seconds of all that were timed."""
        return Recorded(dict(self.counts), self.views, self.modules, dict(self.seconds))


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
            with disable_current_modes():
                if not args[0].is_meta:
                    return func(*args, **given)
                return args[0].new_empty(*args[0].shape[:-1], args[2].shape[-1])

        return self.recorder.count(FUSED_ATTENTION, (args, given), run, (causal,))


@contextmanager
def counted_modules(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Tell the recorder which module is running, and count its calls."""

    def counting(name: str) -> Callable[[nn.Module, Any], None]:
        def count(module: nn.Module, inputs: Any) -> None:
            recorder.enter_module(name)

        return count

    with running_modules(model, recorder.running), ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(counting(name)).remove)
        yield


def loop_calls(loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Recorded]:
    """The result of a long loop over tokens on `meta`, and its calls."""
    recorder = Recorder(None)
    return recorder.loop(loop, shapes, args), recorder.result()
