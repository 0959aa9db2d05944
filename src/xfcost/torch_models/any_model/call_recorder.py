"""The calls of one forward of any module, by the operation that a clock would charge them to."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from torch import nn

from xfcost.torch_models.any_model.costs import operation_name
from xfcost.torch_models.any_model.recorder import Recorder
from xfcost.torch_models.any_model.work import Key, Work
from xfcost.torch_models.predicting.call import Call
from xfcost.torch_models.predicting.calls import FusedAttention, loop_calls
from xfcost.torch_models.predicting.kernel import as_on_cpu, kernel_of, layouts
from xfcost.torch_models.tracing.dispatch import runs_whole

# What belongs to no operation.
OUTSIDE: Final[Key] = ("", "outside", None, None)


class CallRecorder(Recorder):
    """Notes every call, views, and calls of modules."""

    def __init__(self) -> None:
        super().__init__(keeps_free=True)
        self.calls: Counter[tuple[Key, Call]] = Counter()
        self.views: Counter[Key] = Counter()
        self.modules: Counter[Key] = Counter()
        self._last: Call | None = None
        """The call that runs; None of one that only makes another view."""

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        found = kernel_of(func, args, kwargs)
        result = func(*args, **kwargs)
        self._last = None
        if found is not None:
            result = as_on_cpu(found.operation, args, result)
            self._last = Call(found.operation, layouts((args, kwargs)), layouts(result), found.options)
        return result

    def belongs(self, func: Any, work: Work | None) -> None:
        if self._last is None:
            self.views[OUTSIDE] += 1
            return
        if not self._last.inputs and not self._last.outputs:  # nothing is computed: a profiler's mark
            return
        own = None if work is None else work.place
        key = own or self.key(operation_name(func), sys._getframe(1))  # noqa: SLF001 - the call's place in the source
        self.calls[key, self._last] += 1

    def count(self, name: str, tensors: Any, run: Callable[[], Any], options: tuple[Any, ...] = ()) -> Any:
        """Run fused attention, and note it as one call."""
        result = run()
        own = None if self.inside is None else self.inside.place
        key = own or self.key(name, sys._getframe(1))  # noqa: SLF001 - the call's place in the source
        self.calls[key, Call(name, layouts(tensors), layouts(result), options)] += 1
        return result

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if runs_whole(args):
            return loop(*args)
        key = self.key(f"xfcost::{loop.__name__}", sys._getframe(1))  # noqa: SLF001 - the call's place in the source
        result, found = loop_calls(loop, shapes, args)
        for (_, call), times in found.calls.items():
            self.calls[key, call] += times
        self.views[OUTSIDE] += found.views.total()
        return result

    def of_thread(self) -> Recorder:
        other = CallRecorder()
        other.calls, other.views, other.modules = self.calls, self.views, self.modules
        return other

    @contextmanager
    def beside(self, model: nn.Module) -> Iterator[None]:
        """Count the calls of modules, and fused attention as one call."""

        def called(module: nn.Module, inputs: Any) -> None:
            self.modules[OUTSIDE] += 1

        with ExitStack() as stack:
            for module in model.modules():
                stack.callback(module.register_forward_pre_hook(called).remove)
            stack.enter_context(FusedAttention(self))
            yield
