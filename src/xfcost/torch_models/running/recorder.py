"""Records everything that a model runs: forward, backward and update, on `meta`, fake and real tensors."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd import function
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from xfcost.formulas.contractions import Costs
from xfcost.ledger.record import Phase, SavedStorage
from xfcost.torch_models.running.costs import (
    COMPLETE,
    OUTER,
    attention_costs,
    backward_costs,
    is_composite,
    is_free,
    is_nested,
    operation_costs,
    operation_name,
)
from xfcost.torch_models.running.loops import extrapolated
from xfcost.torch_models.running.on_meta import (
    RepeatedShapes,
    TooManyCallsError,
    as_on_cpu,
    attention,
    attention_on_cpu,
    check_indices,
)
from xfcost.torch_models.running.record import (
    ATTENTION,
    Place,
    RecordedCall,
    RunRecord,
    TensorRecord,
    marked,
)
from xfcost.torch_models.running.sparse_costs import stored_unknown
from xfcost.torch_models.running.surroundings import plain_branches, threads_recorded
from xfcost.torch_models.shared.private_torch import (
    DispatchMode,
    aten_operation,
    base_of,
    disable_current_modes,
    learning_parameter,
    next_node,
    pytree,
    run_backward,
    running_node,
    sparse_parts,
    storage_identity,
    torch_files,
)
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.running_modules import running_modules

Clock = Callable[[], float]
_LOOKING: Final = threading.RLock()  # what it replaces, all threads see
_NUMBER: Final = "_xfcost_number"
_numbers: Final = count()
_MACHINERY: Final = frozenset((
    *map(str, Path(__file__).parent.glob("*.py")), function.__file__, torch.overrides.__file__, *torch_files(),
))  # fmt: skip
# What starts a backward pass.
_STARTS: Final = frozenset((torch.autograd.backward, torch.autograd.grad, Tensor.backward))
_READ_NUMBER: Final = aten_operation("_local_scalar_dense").default
_BATCH_NORM: Final = ("input", "running_mean", "running_var", "weight", "bias", "training")


class Recorder(DispatchMode):
    """Adds what runs inside to a `Run`.

    Args:
        model: its parameters and buffers are there before the run. With it, storages are numbered.
        inputs: tensors that are there too.
        clock: measures each call.
        calls: record calls; without, the bytes of storages only.
        for_prediction: results on `meta` lie in memory as on the CPU; attention is the call that the CPU makes; costs
            are left out.
        numbers_on_meta: `item` on `meta` returns 1, so that an optimizer that reads a number can run.
        whole_loops: run all steps of a loop over tokens.
        live: gets the bytes of live storages whenever one is made.
    """

    supports_higher_order_operators = True

    def __init__(  # noqa: PLR0913 - options
        self, model: nn.Module | None = None, inputs: Iterable[Tensor] = (), clock: Clock | None = None, *,
        calls: bool = True, for_prediction: bool = False, numbers_on_meta: bool = False, whole_loops: bool = False,
        live: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.clock, self.calls, self.for_prediction = clock, calls, for_prediction
        self.numbers_on_meta, self.whole_loops = numbers_on_meta, whole_loops
        self.run = RunRecord()
        self.running: list[str] = [""]
        self.stacks: dict[int, list[str]] = {}
        """The running modules of every thread."""
        self.lock = threading.RLock()
        self.phase: Phase = "forward"
        self.inside: RecordedCall | None = None
        """The function that is running, if it counts as one operation."""
        self._names: dict[int, str] = {}
        """Parameters, by their addresses."""
        self._shapes = RepeatedShapes()
        self.loops: dict[Any, Any] = {}
        """What a few steps of equal loops were found to do."""
        self.paused = False
        """Do a loop's first steps run, for a recorder of their own?"""
        self.most: float = inf
        """More operations end the run with a TooManyCallsError."""
        self._recomputing = False
        self.is_saving = False
        numbered = model is not None or not calls
        self.storages = _Storages(self.run.changes, live) if numbered else None
        self.around: Callable[[int], AbstractContextManager[Any]] | None = None
        """Gives a context in which the call of this number runs."""
        self.again: list[float] | None = None
        """Seconds of the calls of a run that repeats the recorded one."""
        if model is not None:
            for tensor in (*model.parameters(), *model.buffers()):
                for part in strided_parts(tensor):
                    self.run.weights.add(self.storage(part, made=True))
        for tensor in inputs:
            self.storage(tensor, made=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if not self.for_prediction and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a tensor made of others, as a jagged one is: it calls this mode with those
        if not self.for_prediction and is_composite(func) and not any(map(is_nested, args)):
            with self:
                return func.decompose(*args, **given)
        if self.again is not None:
            return self._repeated(func, args, given, self.again)
        if self.run.ran >= self.most:
            raise TooManyCallsError
        check_indices(func, args)
        clock = None if self.for_prediction else self.clock
        began = 0.0 if clock is None else clock()
        if self.numbers_on_meta and func is _READ_NUMBER and args[0].is_meta:
            result: Any = 1.0
        else:
            with nullcontext() if self.around is None else self.around(self.run.ran):
                result = self._shapes.result(func, args, given)
        spent = 0.0 if clock is None else clock() - began
        if self.for_prediction:
            result = as_on_cpu(str(func.overloadpacket), args, result)
        with self.lock:
            if self.calls:
                self._record(func, args, given, result, spent)
            else:
                for tensor in pytree.tree_iter(result):
                    if isinstance(tensor, Tensor):
                        self.storage(tensor, made=True)
        return result

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any, spent: float) -> None:
        phase, node = self.phase, None
        if phase == "backward":
            node = running_node()
            if self._recomputing or torch.is_grad_enabled():
                phase = "again"
        if self.for_prediction:
            costs: Costs | None = Counter()
        else:
            costs = (backward_costs if phase == "backward" else operation_costs)(func, args, kwargs, result)
        self.run.stored_unknown |= costs is None and any(map(stored_unknown, args))
        call = self._made(operation_name(func), func, args, kwargs, result, costs)
        call.phase, call.node, call.seconds = phase, node, spent
        if self.for_prediction and phase == "backward":
            call.weight = self._names.get(id(learning_parameter()))
        (self.run.calls if self.inside is None else self.inside.parts).append(call)
        self.run.ran += 1

    def _made(self, name: str, func: Any, args: Any, kwargs: Any, result: Any, costs: Costs | None) -> RecordedCall:
        inputs: list[TensorRecord] = []
        outputs: list[TensorRecord] = []
        own_args = tuple(self._seen(arg, inputs) for arg in args)
        own_kwargs = {key: self._seen(arg, inputs) for key, arg in kwargs.items()}
        self._seen(result, outputs, made=True)
        return RecordedCall(
            operation=name, func=func, module=self.running[-1], place=self.place(sys._getframe(2)),  # noqa: SLF001
            args=own_args, kwargs=own_kwargs, inputs=inputs, outputs=outputs, costs=costs,
            phase=self.phase, next_node=next_node(), node=None, number=self.run.ran,
        )  # fmt: skip

    def _seen(self, value: Any, found: list[TensorRecord], *, made: bool = False) -> Any:
        """`value` with records instead of its tensors, which are added to `found`."""
        if isinstance(value, Tensor):
            record = TensorRecord(
                shape=torch.Size() if value.is_nested else value.shape,
                strides=_strides(value),
                offset=int(value.storage_offset()) if value.layout is torch.strided and not value.is_nested else 0,
                dtype=value.dtype,
                numel=value.numel(),
                tensor=_number_of(value),
                storage=self.storage(value, made=made),
                is_nested=value.is_nested,
                source=marked(value),
            )
            found.append(record)
            return record
        if isinstance(value, tuple | list):
            return [self._seen(one, found, made=made) for one in value]
        return value

    def place(self, frame: FrameType | None) -> Place:
        """The call in the source that runs what `frame` sees."""
        while frame is not None and frame.f_code.co_filename in _MACHINERY:
            frame = frame.f_back
        return frame and frame.f_code, frame and frame.f_lasti

    def function(
        self, func: Any, run: Callable[[], Any], args: Any, kwargs: Any, costs: Any, *, names_unknown: bool = False
    ) -> Any:  # fmt: skip
        """Run a function of torch that counts as one operation; parts of it that no table knows may be named."""
        inside = self.inside = self._made(func.__name__, func, args, kwargs, None, None)
        inside.is_function = True
        try:
            result = run()
        finally:
            self.inside = None
        with self.lock:
            self._seen(result, inside.outputs, made=True)
            inside.costs, inside.next_node = Counter(costs(args, kwargs, result)), next_node()
            if self.phase == "backward":
                inside.phase, inside.node = "again", running_node()
            else:
                inside.phase = "forward"
            if names_unknown:
                inside.uncounted.update(part.operation for part in inside.parts if part.costs is None)
            self.run.calls.append(inside)
        return result

    def attention(self, args: Any, kwargs: Any) -> Any:
        """Fused attention: one operation on every device."""
        if self.for_prediction and torch.is_grad_enabled():
            return attention_on_cpu(args, kwargs)
        if self.again is not None and not args[0].is_meta:
            with disable_current_modes():
                return self._repeated(F.scaled_dot_product_attention, args, kwargs, self.again)

        def differentiated(macs: int) -> None:
            if self.calls:  # its backward pass runs on `meta`
                self.note("scaled_dot_product_attention_backward", Counter(macs=macs))

        run = partial(attention, args, kwargs, differentiated)
        if not self.calls or self.inside is not None:
            return run()
        return self.function(F.scaled_dot_product_attention, run, args, kwargs, attention_costs)

    def note(self, name: str, costs: Costs, steps: Any = None, args: Any = (), result: Any = ()) -> None:
        """Note what runs for the autograd node that runs, or for the running module, and that no dispatcher shows."""
        call = self._made(name, None, args, {}, result, costs)
        call.node = running_node() if self.phase == "backward" else None
        call.steps = steps
        self.run.calls.append(call)

    def storage(self, tensor: Tensor, *, made: bool = False) -> int | None:
        """The number of its memory, if storages are numbered; the bytes of what was just `made` count."""
        return None if self.storages is None else self.storages.number(tensor, made=made)

    def part_of_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        """With gradients enabled it runs again, and so do its parts, even those without."""
        before = self._recomputing
        self._recomputing = before or (torch.is_grad_enabled() and func not in _STARTS)
        try:
            return func(*args, **kwargs)
        finally:
            self._recomputing = before

    def differentiate(self, outputs: Any) -> None:
        """Run the backward pass of the sum of all `outputs` that have a gradient."""
        self.phase = "backward"
        differentiate(outputs)

    @contextmanager
    def saving(self) -> Iterator[None]:
        self.is_saving = True
        try:
            with torch.autograd.graph.saved_tensors_hooks(self.save, lambda tensor: tensor):
                yield
        finally:
            self.is_saving = False

    def save(self, tensor: Tensor) -> Tensor:
        for part in strided_parts(tensor):
            number, nbytes = self.storage(part), part.untyped_storage().nbytes()
            self.run.saved.append(SavedStorage(number, nbytes, self.running[-1], next_node() - 1))
        return tensor

    @contextmanager
    def in_thread(self, path: str) -> Iterator[None]:
        """Record in another thread, for the module of this path, which gave it work."""
        own = self.another()
        own.clock, own.run, own.stacks, own.lock, own.phase = self.clock, self.run, self.stacks, self.lock, self.phase
        own.around = self.around
        own.running = own.stacks[threading.get_ident()] = [path]
        if self.is_saving:
            self.run.missing["saved activations of another thread"] += 1
        try:
            with own.modes():
                yield
        finally:
            del own.stacks[threading.get_ident()]

    def another(self) -> Recorder:
        """A recorder of the same storages with its own record: of another thread, or of a loop's first steps."""
        own = Recorder(calls=self.calls, for_prediction=self.for_prediction)
        own.storages = self.storages
        return own

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A loop over tokens: all its steps, or of very many a few, the others alike."""
        if self.whole_loops or not self.calls or self.clock is not None or self.around is not None:
            return loop(*args)
        return extrapolated(self, loop, shapes, args)

    @contextmanager
    def modes(self) -> Iterator[None]:
        """What this thread runs is recorded."""
        with _Functions(self), in_few_steps(self.loop), self:
            yield

    @contextmanager
    def of(self, model: nn.Module) -> Iterator[Recorder]:
        """Everything that runs inside is recorded, for the module of `model` that runs it."""

        def called(name: str) -> None:
            if self.again is None:
                self.run.modules[name] += 1

        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        with ExitStack() as stack:
            if self.storages is not None:
                stack.callback(self.storages.forget)
            stack.enter_context(running_modules(model, self.running, self.run.missing, self.stacks, called))
            stack.enter_context(threads_recorded(lambda: self.in_thread(self.running[-1])))
            stack.enter_context(plain_branches())
            stack.enter_context(self.modes())
            yield self

    @contextmanager
    def as_module(self, name: str) -> Iterator[None]:
        self.running.append(name)
        try:
            yield
        finally:
            self.running.pop()

    def repeat(self) -> None:
        """The recorded run is over; those that follow make the same calls, and are timed alone.

        Then only a clock stands between two calls. What a recorded run does there would empty the first caches and let
        the other threads fall asleep: a call of microseconds would take twice as long.
        """
        expected = sum(call.operation == ATTENTION or not is_free(call.func) for call in self.run.dispatched())
        if self.again is not None:
            if len(self.again) != expected:
                raise RuntimeError(f"a run of {len(self.again)} calls after one of {expected}: not the same")
            self.run.repeats.append(self.again)
        self.again = []

    def _repeated(self, func: Any, args: Any, kwargs: Any, times: list[float]) -> Any:
        clock = self.clock
        if clock is None or (func is not F.scaled_dot_product_attention and is_free(func)):
            return func(*args, **kwargs)
        began = clock()
        result = func(*args, **kwargs)
        times.append(clock() - began)
        return result


class _Storages:
    """Numbers of storages, and the bytes that they take and give back."""

    def __init__(self, changes: list[tuple[int, int]], live: Callable[[int], None] | None) -> None:
        self._changes, self._live, self._now = changes, live, 0
        self._numbers: dict[int, int] = {}
        self._count = count()
        self._waiting: list[weakref.finalize[Any, Any]] = []

    def number(self, tensor: Tensor, *, made: bool) -> int | None:
        """Of a tensor's storage; None of a tensor without one. Of one that was just `made` bytes count."""
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        identity = storage_identity(storage)
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = next(self._count)
            nbytes = storage.nbytes() if made else 0
            self._changed(number, nbytes)
            self._waiting.append(weakref.finalize(storage, self._freed, identity, number, nbytes))
        return number

    def _freed(self, identity: int, number: int, nbytes: int) -> None:
        del self._numbers[identity]
        self._changed(number, -nbytes)

    def _changed(self, number: int, nbytes: int) -> None:
        self._changes.append((number, nbytes))
        self._now += nbytes
        if self._live is not None and nbytes > 0:
            self._live(self._now)

    def forget(self) -> None:
        for one in self._waiting:
            one.detach()
        self._waiting.clear()
        self._numbers.clear()


class _Functions(TorchFunctionMode):
    """Functions that count as one operation by convention, although the dispatcher sees several."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, recorder = kwargs or {}, self.recorder
        if func is F.multi_head_attention_forward:  # it runs its own lines, instead of asking this mode again
            with _LOOKING, patch.object(F, "has_torch_function", lambda tensors: False), self:
                return func(*args, **given)
        if func is F.scaled_dot_product_attention:
            return recorder.attention(args, given)
        if func is F.batch_norm and not recorder.calls:
            return _batch_norm(args, given)
        if recorder.calls and recorder.phase == "backward":
            return recorder.part_of_backward(func, args, given)
        costs = OUTER.get(func) or COMPLETE.get(func)
        starts_one = recorder.calls and recorder.inside is None and recorder.again is None and not recorder.paused
        if costs is None or not starts_one:
            return func(*args, **given)
        run = partial(func, *args, **given)
        return recorder.function(func, run, args, given, costs, names_unknown=func in OUTER)


def _batch_norm(args: Any, kwargs: Any) -> Any:
    """With running statistics it allocates its output; torch's `meta` version a batch's statistics too."""
    given = dict(zip(_BATCH_NORM, args, strict=False)) | kwargs
    if given.get("training") or not given["input"].is_meta:
        return F.batch_norm(*args, **kwargs)
    return torch.empty_like(given["input"])


def _number_of(tensor: Tensor) -> int:
    """Its number; of a view that autograd made, without one, that of what it is a view of."""
    number: int | None = getattr(tensor, _NUMBER, None)
    if number is None:
        number = getattr(base_of(tensor), _NUMBER, None)
    if number is None:
        number = next(_numbers)
        setattr(tensor, _NUMBER, number)
    return number


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """As it lies in memory; of a sparse tensor as if it were dense, of a nested one none."""
    if tensor.is_nested:
        return ()
    if tensor.layout is torch.strided:
        return tensor.stride()
    with disable_current_modes():
        return torch.empty(tensor.shape, device="meta").stride()


def strided_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that hold a tensor's elements: of a sparse one its indices and values."""
    if tensor.layout is torch.sparse_coo:
        return sparse_parts(tensor)
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor.values(),) if tensor.layout is torch.jagged else (tensor,)


def differentiate(outputs: Any) -> None:
    """The backward pass of the sum of all `outputs` that have a gradient."""
    tensors = tuple(one for one in pytree.tree_iter(outputs) if isinstance(one, Tensor) and one.requires_grad)
    run_backward(tensors, tuple(map(torch.ones_like, tensors)))
