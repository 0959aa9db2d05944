"""Records every ATen operation of a run: in which module, from which call, with what costs, shapes and weights."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd import function
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from xfcost.torch_models.any_model.attention import note_fused, note_softmax
from xfcost.torch_models.any_model.branches import plain_branches
from xfcost.torch_models.any_model.costs import (
    COMPLETE,
    OUTER,
    does_work,
    is_composite,
    operation_costs,
    operation_name,
    tensors_in,
)
from xfcost.torch_models.any_model.lineage import (
    SOFTMAXES,
    Lineage,
    after_contraction,
    inherited,
    lineage,
    multiplies_activations,
    note,
)
from xfcost.torch_models.any_model.operands import operand_bytes, shape_of
from xfcost.torch_models.any_model.threads import threads_recorded
from xfcost.torch_models.any_model.work import Work
from xfcost.torch_models.predicting import calls
from xfcost.torch_models.shared.private_torch import TorchDispatchMode, torch_files
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.running_modules import running_modules
from xfcost.torch_models.tracing import kernels
from xfcost.torch_models.tracing.dispatch import Watch
from xfcost.torch_models.tracing.elementwise_costs import Costs
from xfcost.torch_models.tracing.kernels import attention_operands

_LOOKING: Final = threading.RLock()  # what it replaces, all threads see
Clock = Callable[[], float]
_MACHINERY: Final = frozenset((
    *map(str, Path(__file__).parent.glob("*.py")), calls.__file__, kernels.__file__, function.__file__,
    torch.overrides.__file__, *torch_files(),
))  # fmt: skip


class Recorder(TorchDispatchMode):
    """The operations of a run, in the order in which each first ran.

    An operation is a call in the source: a loop that runs it again adds to it.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch would import its compiler, which takes a second."""
        return False

    def __init__(self, clock: Clock | None = None, *, keeps_free: bool = False) -> None:
        """`clock` measures each operation; `keeps_free` keeps those without costs, but for views."""
        super().__init__()
        self.clock = clock
        self.keeps_free = keeps_free
        self.seconds: dict[tuple[Any, ...], float] = {}
        """By module, name and place in the source."""
        self._spent = 0.0
        self.works: dict[tuple[Any, ...], Work] = {}
        self.running: list[str] = [""]
        self.in_threads: Counter[str] = Counter()
        """Modules that other threads ran, whose operations torch does not show here."""
        self.stacks: dict[int, list[str]] = {}
        """The running modules of every thread."""
        self.lock = threading.RLock()
        self.ran = 0
        """How many ATen operations ran, free ones and views included."""
        self.inside: Work | None = None
        """The function that is running, if it counts as one operation."""
        self.counts_inside: Literal["all", "contractions", "nothing"] = "all"
        self.whole = True
        """Do functions count as one operation? Not in a backward pass, where the forward's operations are known."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if is_composite(func):
            with self:
                return func.decompose(*args, **given)
        result = self.call(func, args, given)
        with self.lock:
            self.see(func, args, given, result)
        return result

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation, and measure it if there is a clock."""
        if self.clock is None:
            return func(*args, **kwargs)
        began = self.clock()
        result = func(*args, **kwargs)
        self._spent = self.clock() - began
        return result

    def see(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Count an operation that has run."""
        tensors, results = tensors_in((*args, *kwargs.values())), tensors_in((result,))
        found = inherited(tensors, results)
        if self.inside is not None:
            self.belongs(func, self.inside)
        if self.counts_inside == "nothing" and self.inside is not None:
            self.inside.sequence.append(self.ran)
        elif self.inside is not None:
            self._count_inside(self.inside, func, args, kwargs, result)
        else:
            found = self._count(func, args, kwargs, result, found)
        for tensor in results:
            note(tensor, found)
        self.ran += 1

    def belongs(self, func: Any, work: Work | None) -> None:
        """Called with the operation that a call belongs to; None of one that costs nothing."""
        if self.clock is not None and does_work(func):
            key = None if work is None else work.place
            self.charge(key or self.key(operation_name(func), sys._getframe(1)))  # noqa: SLF001 - the call's place

    def charge(self, key: tuple[Any, ...]) -> None:
        """Add the seconds of the last call to an operation's."""
        self.seconds[key] = self.seconds.get(key, 0.0) + self._spent

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any, found: Lineage) -> Lineage:
        """Add the call to its operation; what its result comes from."""
        packet = getattr(func, "overloadpacket", None)
        costs = operation_costs(func, args, kwargs, result)
        if costs is not None and not any(costs.values()) and not (self.keeps_free and does_work(func)):
            self.belongs(func, None)
            return found
        work = self.work(operation_name(func), sys._getframe(1))  # noqa: SLF001 - the call's place in the source
        self.belongs(func, work)
        work.sequence.append(self.ran)
        _add(work, costs, tensors_in((*args, *kwargs.values())), tensors_in((result,)))
        if packet in SOFTMAXES:
            note_softmax(work, args[0], args[1])
            return found._replace(scores=None)
        if costs and costs["macs"]:
            product = work if multiplies_activations(packet, args) else None
            return after_contraction(found, tensors_in(args), tensors_in((result,))[0], product)
        return found

    def _count_inside(self, work: Work, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Of a function's parts, count contractions; and name those that nothing is known of."""
        found = operation_costs(func, args, kwargs, result)
        work.sequence.append(self.ran)
        if found is None:
            work.uncounted[operation_name(func)] += 1
        elif found:
            work.costs.update(macs=found["macs"], flops=2 * found["macs"])

    def work(self, name: str, frame: FrameType) -> Work:
        """The operation `name` that the running module calls at this place."""
        return self.work_at(self.key(name, frame))

    def key(self, name: str, frame: FrameType) -> tuple[Any, ...]:
        """The running module, `name`, and the call in the source that runs what `frame` sees."""
        return self.running[-1], name, *called_from(frame)

    def work_at(self, key: tuple[Any, ...]) -> Work:
        """The operation of this module, name and place in the source."""
        if key not in self.works:
            self.works[key] = Work(key[0], key[1], key)
        return self.works[key]

    def of_thread(self) -> Recorder:
        """A recorder of another thread."""
        return Recorder(self.clock, keeps_free=self.keeps_free)

    @contextmanager
    def in_thread(self, path: str) -> Iterator[None]:
        """Record in another thread, for the module of this path, which gave it work."""
        own = self.of_thread()
        own.works, own.seconds, own.stacks, own.lock = self.works, self.seconds, self.stacks, self.lock
        own.running = [path]
        own.stacks[threading.get_ident()] = own.running
        try:
            with modes_of(own):
                yield
        finally:
            del own.stacks[threading.get_ident()]

    def part_of_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function of torch that a backward pass calls."""
        return func(*args, **kwargs)

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """One of our own recurrences: all its steps, or of very many a few, the others alike."""
        watch = Watch()
        result = watch.loop(loop, shapes, args)
        if watch.costs:
            results = tensors_in((result,))
            work = self.work(f"xfcost::{loop.__name__}", sys._getframe(1))  # noqa: SLF001 - the call's place
            _add(work, watch.costs[""], tensors_in(args), results)
            for tensor in results:
                note(tensor, Lineage(varies=True))
        return result


def called_from(frame: FrameType) -> tuple[Any, Any]:
    """The call in the source that runs what `frame` sees."""
    place: FrameType | None = frame
    while place is not None and place.f_code.co_filename in _MACHINERY:
        place = place.f_back
    return place and place.f_code, place and place.f_lasti


def _add(work: Work, found: Costs | None, given: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Add one call: its costs, its shapes if it is the first, the parameters it takes."""
    if found is None:
        work.uncounted[work.operation] += 1
    else:
        work.costs.update(found)
    work.called(list(map(shape_of, given)), list(map(shape_of, results)))
    work.operand_bytes += operand_bytes(work.name, given, results)
    for tensor in given:
        work.weights.update(dict.fromkeys(sorted(lineage(tensor).weights)))


class WholeFunctions(TorchFunctionMode):
    """Functions that count as one operation by convention, although the dispatcher sees several."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, recorder = kwargs or {}, self.recorder
        if func is F.multi_head_attention_forward:
            with _looked_into(), self:
                return func(*args, **given)
        if not recorder.whole:
            return recorder.part_of_backward(func, args, given)
        costs = OUTER.get(func) or COMPLETE.get(func)
        if costs is None or recorder.inside is not None or recorder.counts_inside == "nothing":
            return func(*args, **given)
        key = recorder.key(func.__name__, sys._getframe(1))  # noqa: SLF001 - the call's place in the source
        inside = Work(key[0], key[1], key)
        recorder.inside, recorder.counts_inside = inside, "nothing" if func in COMPLETE else "contractions"
        try:
            result = func(*args, **given)
        finally:
            recorder.inside, recorder.counts_inside = None, "all"
        inside.costs.update(costs(args, given, result))
        if any(inside.costs.values()) or inside.uncounted or (recorder.keeps_free and inside.sequence):
            work = recorder.work_at(key)
            work.uncounted.update(inside.uncounted)
            work.sequence += inside.sequence
            _add(work, inside.costs, tensors_in((*args, *given.values())), tensors_in((result,)))
            if func is F.scaled_dot_product_attention:
                operands = attention_operands(args, given)
                note_fused(work, operands["query"], operands["key"], operands["value"])
        return result


@contextmanager
def _looked_into() -> Iterator[None]:
    """Let a function of torch run its own lines, instead of asking the mode again."""
    with _LOOKING, patch.object(F, "has_torch_function", lambda tensors: False):
        yield


@contextmanager
def recording(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Everything that runs inside is recorded, for the module of `model` that runs it."""
    with ExitStack() as stack:
        stack.enter_context(running_modules(model, recorder.running, recorder.in_threads, recorder.stacks))
        stack.enter_context(threads_recorded(lambda: recorder.in_thread(recorder.running[-1])))
        stack.enter_context(plain_branches())
        stack.enter_context(modes_of(recorder))
        yield


@contextmanager
def modes_of(recorder: Recorder) -> Iterator[None]:
    """What this thread runs is recorded."""
    with WholeFunctions(recorder), in_few_steps(recorder.loop), recorder:
        yield
