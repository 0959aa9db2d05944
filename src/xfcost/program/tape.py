"""Runs a program on symbolic tensors: a row for each leaf, and where memory is asked for, what autograd saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partialmethod
from math import prod
from typing import Any, Final
from weakref import ref

import msgspec
from msgspec.structs import force_setattr

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Component, Place
from xfcost.formulas.contractions import Cost, Costs
from xfcost.formulas.operation_costs import COSTS, FREE
from xfcost.ledger.accounts import Cached, WeightsRead
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.operation import Operation
from xfcost.ledger.quantization import WeightMatrix
from xfcost.ledger.record import Call, Record, SavedStorage
from xfcost.ledger.tensors import Type, width_of
from xfcost.ledger.units import Number
from xfcost.program.leaves import Leaf, Worked
from xfcost.program.loops import LOOPS
from xfcost.program.operations import Operations
from xfcost.program.symbolic import (
    LiveStorage,
    Origin,
    Shape,
    Storage,
    Symbolic,
    broadcast,
    contiguous_strides,
    lettered,
    view_strides,
)
from xfcost.program.titles import TITLES

# What an element-wise operation saves: its input or its output. The others save nothing but factors.
_SAVES_INPUT: Final = frozenset({"gelu", "gelu_tanh", "silu", "relu6", "softplus", "square", "sin", "elu", "log"})
_SAVES_OUTPUT: Final = frozenset({"relu", "sigmoid", "tanh", "exp", "rsqrt", "softmax"})
_WHOLE: Final = frozenset({"int64", "bool"})
_FLOAT32: Final = 4


@dataclass(slots=True)
class TapeCall(Call):
    """An operation of a leaf."""

    result: Origin | None = None
    """The tensor that it makes, where that has a gradient."""
    backward_macs: Number = None
    """MACs of the backward pass from its result to what that is made of; None where it multiplies nothing."""


@dataclass(slots=True)
class _RunningLeaf:
    path: str
    """Of its row."""
    params: Number = 0
    takes_input: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    saves: list[Symbolic] = field(default_factory=list)


class Tape(Operations):
    """Runs a program on symbolic tensors of `batch` samples.

    Args:
        batch: samples; rows are those of one.
        element: bytes of an element of the model's dtype, where memory is asked for.
        decodes: run a decode step.
        cached: tokens of a cached prefix, behind which the tokens of the places come.
        gradients: autograd saves what it needs; without, tensors are freed as soon as nobody holds them.
    """

    def __init__(
        self, *, batch: int = 1, element: int | None = None, decodes: bool = False, cached: int = 0,
        gradients: bool = True,
    ) -> None:  # fmt: skip
        self.batch, self.decodes, self.cached, self.gradients = batch, decodes, cached, gradients
        self.titles: Mapping[str, str] = {}
        """Titles of the component that runs; they come before those of `titles.py`."""
        self.follows_memory, self.element = element is not None, element or 4
        self.rows: dict[str, Operation] = {}
        self.prefix = ""
        """Of the paths of rows: the component's own."""
        self.record: Record[TapeCall] = Record()
        """Of what costs something; of memory, where that is asked for."""
        self._frees = self.follows_memory and not gradients
        self._now: _RunningLeaf | None = None
        self._matrices: list[tuple[ref[Storage], Number]] = []
        """Attention matrices that may be alive, with their entries."""
        self._saved_matrices: list[tuple[str, Origin, Number]] = []
        """By the path of the row that made each."""
        self._results: list[Symbolic] = []
        """What a component leaves beside its output."""
        self._steps: Number = None
        """Steps of a loop over the tokens for which that which runs now stands; None outside a loop."""
        self._alike: Number = 1
        """Steps of a loop inside a leaf for which that which runs now stands."""

    # ── tensors ──

    def input(self, *shape: Number, type_: Type = "model", learns: bool = True, raw: bool = True) -> Symbolic:
        """What comes into the component, (B, …)."""
        whole = (self.batch, *shape)
        return self._tensor(whole, self.storage(prod(whole), type_), learns=learns and self.gradients, raw=raw)

    def _tensor(
        self, shape: Shape, storage: Storage, *, learns: bool, once: bool = False, raw: bool = False
    ) -> Symbolic:  # fmt: skip
        """A tensor that lies in memory in the order of its axes."""
        strides = contiguous_strides(shape) if self.follows_memory else ()
        return Symbolic(self, shape, storage, strides, 0, learns, once, raw)

    def storage(self, elements: Number, type_: Type = "model", origin: Origin | None = None) -> Storage:
        """New memory for so many elements."""
        if not self._frees:
            return Storage(elements, type_, origin)
        return LiveStorage(elements, type_, elements * width_of(type_, self.element), self.record.changes)

    def weight(
        self, *shape: Number, learns: bool = True, shared: str | None = None, adapts: bool = False
    ) -> Symbolic:  # fmt: skip
        """A parameter of the leaf that runs, a buffer, or a table that the whole model shares by its name.

        Beside adapters only those have a gradient that are of them.
        """
        size = prod(shape)
        if shared is not None:
            self.note(shared=shared)
        elif learns:
            self.now.params += size
        learns = learns and self.gradients and (adapts or self.lora is None)
        return self._tensor(shape, Storage(size, held=True), learns=learns, once=True)

    def held(self, *shape: Number, type_: Type = "model") -> Symbolic:
        """A buffer: no activation of this pass."""
        return self._tensor(shape, Storage(prod(shape), type_, held=True), learns=False, once=True)

    def inputs(self, component: Component, place: Place) -> tuple[Symbolic, ...]:
        """What comes in, one token in a decode step; and the memory or an earlier stage's output, if it reads that."""
        tokens, *width = component.entering(place)
        type_ = component.entering_type
        x = self.input(1 if self.decodes else tokens, *width, type_=type_, learns=type_ == "model")
        if place.memory is None or not (component.reads_memory or component.reads_stage):
            return (x,)
        return x, self.input(place.memory.total, place.memory_dim, raw=False)

    def past(self, *shape: Number) -> Symbolic:
        """What earlier steps left, (B, …)."""
        return self._tensor(shape, Storage(prod(shape), held=True), learns=self.gradients)

    def steps(self, count: Number) -> Iterator[int]:
        """The numbers of the steps of a loop; where only costs are asked for, one step stands for all of them."""
        if self.follows_memory:
            yield from range(count)
            return
        with self._standing_for(count):
            yield 0

    def made(
        self, shape: Shape, *of: Symbolic, like: Symbolic | None = None, type_: Type = "model", raw: bool = False
    ) -> Symbolic:
        """A new tensor, made of others; its axes lie in memory as those of `like` do."""
        learned, once, passes = [], True, True
        for one in of:
            once = once and one.once
            if one.learns:
                learned.append(one.storage.origin)
                passes = passes and one.raw
            raw = raw or (one.raw and one.storage.type not in _WHOLE)
        learns = bool(learned) and type_ not in _WHOLE
        origin, raw = Origin(learned) if learns else None, raw and passes
        if not self.follows_memory:
            return Symbolic(self, shape, Storage(0, type_, origin), (), 0, learns, once, raw)
        each = 1 if self._frees else self._alike  # of steps without gradients one is there at a time
        storage = self.storage(prod(shape) * each, type_, origin)
        storage.of_step = self._steps is not None
        strides = contiguous_strides(shape) if like is None else _in_order_of(like, shape)
        return Symbolic(self, shape, storage, strides, 0, learns, once, raw)

    # ── operations ──

    @property
    def now(self) -> _RunningLeaf:
        """The leaf that runs.

        Raises:
            RuntimeError: none does. Work belongs to a leaf, so that it has a row.
        """
        if self._now is None:
            raise RuntimeError("an operation that costs something runs outside all leaves of the program")
        return self._now

    def note(self, **facts: Any) -> None:
        """Fields of the row of the leaf that runs."""
        self.now.facts |= facts

    def call(
        self, operation: str, args: tuple[Any, ...], shape: Shape, *, like: Symbolic | None = None,
        factors: tuple[Symbolic, Symbolic] | None = None, type_: Type = "model",
    ) -> Symbolic:  # fmt: skip
        """One operation of torch by its name, with the costs of the table; `factors` are those of a contraction."""
        tensors = [one for one in args if isinstance(one, Symbolic)]
        result = tensors[0] if operation.endswith("_") else self.made(shape, *tensors, like=like, type_=type_)
        costs = None if operation in FREE else COSTS[operation](args, result)
        if costs:
            call = self._called(operation, costs)
            call.result = result.storage.origin
            if factors is not None:
                a, b = factors
                call.backward_macs = costs["macs"] * (a.learns + b.learns)
                self.now.takes_input = self.now.takes_input or a.raw or b.raw
        return result

    def cost(self, quantity: str, amount: Number) -> None:
        """A cost of the leaf that runs, where no operation of the table has it."""
        self._called("", Cost({quantity: amount}))

    def _called(self, operation: str, costs: Costs | None) -> TapeCall:
        call = TapeCall(operation, self.now.path, costs, times=1 if self._steps is None else self._steps)
        self.record.calls.append(call)
        return call

    def gradient(self, macs: Number) -> None:
        """MACs of the backward pass from what the last call has made to what it has made that of."""
        self.record.calls[-1].backward_macs = macs

    def save(self, result: Symbolic, *tensors: Symbolic) -> Symbolic:
        """`result`, for the gradient of whose operation autograd saves the storages of the other tensors."""
        if result.learns:
            for one in tensors:
                if one.storage.origin is not None:
                    one.storage.origin.saved = True
            if self.follows_memory:
                self.now.saves += tensors
        return result

    def elementwise(self, work: str, x: Symbolic, other: Symbolic | float | None = None) -> Symbolic:
        """An operation by element; a factor is saved for the gradient of the other one."""
        args: tuple[Any, ...] = (x,)
        shape, types = x.shape, {x.storage.type}
        if isinstance(other, Symbolic):
            args, shape, types = (x, other), broadcast(shape, other.shape), {x.storage.type, other.storage.type}
        type_: Type = "complex" if "complex" in types else "int64" if types <= _WHOLE else "model"
        name, args = ("gelu", (x, "tanh")) if work == "gelu_tanh" else (work, args)
        result = self.call(f"aten::{name}", args, shape, like=x, type_=type_)
        if work in {"mul", "div"} and isinstance(other, Symbolic):
            self.save(result, *(one for one, of in ((x, other), (other, x)) if of.learns))
        elif work in _SAVES_INPUT:
            self.save(result, x)
        elif work in _SAVES_OUTPUT:
            self.save(result, result)
        return result

    def reduced(
        self, work: str, x: Symbolic, dim: int | tuple[int, ...], *, keepdim: bool, type_: Type = "model"
    ) -> Symbolic:  # fmt: skip
        """A sum, mean or maximum along an axis, or along several."""
        axes = {one % x.ndim for one in (dim if isinstance(dim, tuple) else (dim,))}
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdim or axis not in axes)
        return self.call(f"aten::{work}", (x,), shape, type_=type_)

    def arange(self, count: Number, like: Symbolic) -> Symbolic:
        """0 to `count` - 1, on the device of `like`."""
        return self._tensor((count,), self.storage(count, "int64"), learns=False, once=True)

    def eq(self, x: Symbolic, y: Symbolic | float) -> Symbolic:
        shape = broadcast(x.shape, y.shape) if isinstance(y, Symbolic) else x.shape
        return self.call("aten::eq", (x, y), shape, type_="bool")

    def is_half(self, x: Symbolic) -> bool:
        """Has x the narrow range of float16?"""
        return False

    def least(self, x: Symbolic) -> float:
        """The least number of the type of x."""
        return float("-inf")

    def grid_sample(self, x: Symbolic, points: Symbolic) -> Symbolic:
        """x (B, C, *sides) at points (B, N, P, axes) from -1 to 1, bilinear, zeros beyond borders: -> (B, C, N, P)."""
        return self.save(self.call("aten::grid_sampler", (x, points), (*x.shape[:2], *points.shape[1:-1])), x, points)

    def where(self, condition: Symbolic, x: Symbolic, y: Symbolic) -> Symbolic:
        result = self.call("aten::where", (condition, x, y), broadcast(condition.shape, x.shape, y.shape))
        self.save(result, condition)
        return result

    def pooled(self, x: Symbolic, size: Number, form: str) -> Symbolic:
        """The `mean` or the `max` of every `size` neighbours, of fewer at the end: (…, N) -> (…, ⌈N/size⌉)."""
        shape = (*x.shape[:-1], ceil_div(x.shape[-1], size))
        y = self.call("aten::max_pool1d" if form == "max" else "aten::avg_pool1d", (x, (size,)), shape, like=x)
        self.save(y, x, *([self.made(shape, x, type_="int64")] if form == "max" else []))
        return y

    def later(self, x: Symbolic, past: Number = 0) -> Symbolic:
        """Where keys come after their query, of scores (…, N, M): (N, M); the first `past` keys come before all.

        A mask that every pass makes.
        """
        return self._tensor(x.shape[-2:], self.storage(prod(x.shape[-2:]), "bool"), learns=False, once=True)

    def take_rows(self, table: Symbolic, index: Symbolic) -> Symbolic:
        """Rows of (R, D) by their numbers (…): (…, D)."""
        return self.save(self.call("aten::index", (table, index), (*index.shape, table.shape[-1])), index)

    def embedding(self, numbers: Symbolic, table: Symbolic) -> Symbolic:
        """The same as torch's embeddings do it: (…), (R, D) -> (…, D)."""
        return self.save(self.call("aten::embedding", (table, numbers), (*numbers.shape, table.shape[-1])), numbers)

    def linear_map(
        self, x: Symbolic, weight: Symbolic, bias: Symbolic | None = None, *, stored_in_dtype: bool = False
    ) -> Symbolic:  # fmt: skip
        """xWᵀ + b, F.linear: (…, D), (D', D) -> (…, D'). No format quantises what is `stored_in_dtype`."""
        outputs, inputs = weight.shape
        self.note(weight_matrices=() if stored_in_dtype else (WeightMatrix(inputs, outputs),))
        y = self.call("aten::linear", (x, weight, bias), (*x.shape[:-1], outputs), factors=(x, weight))
        if not (self._frees and _is_spread(x)):
            flat = x.reshape(-1, inputs) if self.follows_memory else x
            self.save(y, *([flat] if weight.learns else []))
        return y

    def solved(self, system: Symbolic, x: Symbolic) -> Symbolic:
        """y of Ly = x, L lower triangular with ones on its diagonal, which are not read: (…, N, N), (…, N, M).

        The gradient of x solves a system too, that of L is a product; what is solved is float32 or wider.
        """
        half = self.element < _FLOAT32
        if half:
            system, x = (self.made(one.shape, one, type_="float32") for one in (system, x))
        args = (system, x, False, True, True)
        # its columns lie in memory
        y = self.call("aten::linalg_solve_triangular", args, x.mT.shape, type_=x.storage.type).mT
        product = x.numel() * x.shape[-2] if system.learns else 0
        self.gradient((self.record.calls[-1].costs or {"macs": 0})["macs"] + product)
        self.save(y, system, y)
        return self.made(y.shape, y, like=y) if half else y

    def rfft(self, x: Symbolic, n: Number, dim: int) -> Symbolic:
        """The spectrum of real numbers along an axis, zero-padded to n: n/2 + 1 complex numbers.

        The numbers filled up with zeros are saved, in float32 or wider.
        """
        axis = dim % x.ndim
        sizes = ((*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in (n // 2 + 1, n))
        y = self.call("aten::fft_rfft", (x, n, dim), next(sizes), type_="complex")
        self.save(y, self.made(next(sizes), x, type_="statistic"))
        return y

    def irfft(self, x: Symbolic, n: Number, dim: int, *, like: Symbolic) -> Symbolic:
        """n real numbers of a spectrum, in the type of `like`."""
        axis = dim % x.ndim
        return self.call("aten::fft_irfft", (x, n, dim), (*x.shape[:axis], n, *x.shape[axis + 1 :]))

    elu = partialmethod(elementwise, "elu")
    silu = partialmethod(elementwise, "silu")
    softplus = partialmethod(elementwise, "softplus")

    def layer_norm(self, x: Symbolic, *weights: Symbolic) -> Symbolic:
        """The layer norm of the last axis, in a function without weights; x, mean and 1/σ of each vector are saved."""
        y = self.call("aten::layer_norm", (x, *weights), x.shape)
        self.save(y, x, self.made((*x.shape[:-1], 2), x, type_="statistic"))
        return y

    def rms_norm(self, x: Symbolic, weight: Symbolic | None, epsilon: float = 0.0) -> Symbolic:
        """The RMS norm of the last axis.

        x and 1/rms of each vector are saved, x in float32 or wider; and x/rms for the weight's gradient.
        """
        y = self.call("aten::rms_norm", (x, weight), x.shape, like=x)
        wide = x if self.element >= _FLOAT32 else self.made(x.shape, x, type_="float32")
        normed = () if weight is None or not weight.learns else (self.made(x.shape, x, type_="statistic"),)
        self.save(y, wide, *normed, self.made(x.shape[:-1], x, type_="statistic"))
        return y

    def zeros(self, *shape: Number, like: Any = None, type_: Type = "model") -> Symbolic:
        return self._tensor(shape, self.storage(prod(shape), type_), learns=False)

    ones = zeros

    def repeat_interleave(self, x: Symbolic, repeats: int, dim: int) -> Symbolic:
        axis = dim % x.ndim
        shape = (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :])
        return self.call("aten::repeat_interleave", (x, repeats, dim), shape)

    def constant(
        self, name: str, worked: Worked, *shape: Number, like: Any, so_far: int | None = None
    ) -> Symbolic:  # fmt: skip
        return self.held(*shape, type_=worked.type)

    def earlier(self, name: str, tokens: Number, *, like: Any) -> Symbolic:
        return self.held(1, tokens, like.shape[-1])

    def here(self, table: Any, count: Number) -> Any:
        return table.narrow(0, 0, 1 if self.decodes else count)

    def cat(self, tensors: Sequence[Symbolic], dim: int) -> Symbolic:
        axis = dim % tensors[0].ndim
        length = sum(one.shape[axis] for one in tensors)
        first = tensors[0].shape
        shape, type_ = (*first[:axis], length, *first[axis + 1 :]), tensors[0].storage.type
        return self.call("aten::cat", tuple(tensors), shape, type_=type_)

    def normalize(self, x: Symbolic) -> Symbolic:
        """x / max(‖x‖, ε) along the last axis."""
        lengths = self.call("aten::linalg_vector_norm", (x,), (*x.shape[:-1], 1))
        self.save(lengths, x, lengths)
        clamped = self.call("aten::clamp_min", (lengths,), lengths.shape)
        return self.elementwise("div", x, clamped)

    def pad_sides(self, x: Symbolic, sides: Sequence[Number]) -> Symbolic:
        """Zeros around the last axes, as torch.nn.functional.pad has them."""
        more = [one + other for one, other in zip(sides[::2], sides[1::2], strict=True)][::-1]
        first = x.ndim - len(more)
        padded = (*x.shape[:first], *(size + n for size, n in zip(x.shape[first:], more, strict=True)))
        return self._padded(x, padded, *sides)

    def pad(
        self, x: Symbolic, dim: int | tuple[int, ...], *, before: Number = 0, after: Number = 0, value: float = 0.0
    ) -> Symbolic:  # fmt: skip
        """Zeros, or another value, before and after, along an axis, or along each of several."""
        axes = [axis % x.ndim for axis in (dim if isinstance(dim, tuple) else (dim,))]
        shape = [before + size + after if axis in axes else size for axis, size in enumerate(x.shape)]
        return self._padded(x, tuple(shape), before, after)

    def _padded(self, x: Symbolic, shape: Shape, *zeros: Number) -> Symbolic:
        if not any(zeros):
            return x.view_of(shape, x.strides)
        return self.call("aten::constant_pad_nd", (x,), shape, type_=x.storage.type)

    def filled(self, like: Symbolic, shape: Shape, value: float) -> Symbolic:
        """A constant tensor, of the type of `like`."""
        constant = self.made(shape, like)
        constant.learns = constant.raw = False
        return constant

    def loop(self, name: str, *args: Any) -> Any:
        """A loop over the tokens (`loops.py`), which torch runs as one operation.

        Its costs are those of the table; its steps show what autograd saves of them.
        """
        calls, facts, operation = self.record.calls, self.now.facts, f"xfcost::{name}"
        first, self.now.facts = len(calls), {}
        result = LOOPS[name](self, *args)
        self.now.facts = facts
        for step in calls[first:]:
            step.costs = Cost()
        self._called(operation, COSTS[operation](args, result))
        return result

    def scan(
        self, step: Callable[..., tuple[Any, ...]], parts: Sequence[Symbolic], states: Sequence[Symbolic], *others: Any,
        reverse: bool = False,
    ) -> tuple[Symbolic, ...]:  # fmt: skip
        """step(t, *states, *parts of a token, *others) -> (y, *states), from token to token: all y, the last states.

        y may be several outputs, a tuple. Of the steps run the first, one that stands for those in the middle, and the
        last, behind which no state may be read.
        """
        count = parts[0].shape[1]
        here = [part.select(1, 0) for part in parts]
        y, *after = step(self, *states, *here, *others)
        found = [y]
        for alike in (count - 2, 1):
            if count - 1 and (alike or lettered(alike)):
                with self._standing_for(alike):
                    y, *after = step(self, *after, *here, *others)
                found.append(y)
        if not isinstance(y, tuple):
            return self._stacked(found, count), *after
        outputs: Any = tuple(self._stacked(each, count) for each in zip(*found, strict=True))
        return outputs, *after

    def _stacked(self, found: Sequence[Symbolic], count: Number) -> Symbolic:
        """An output of all steps: (B, N, …)."""
        first, *others = found[0].shape
        return self.call("aten::stack", tuple(found), (first, count, *others))

    @contextmanager
    def _standing_for(self, count: Number) -> Iterator[None]:
        """What runs stands for so many steps alike, each of which makes tensors of its own."""
        first, self._alike = len(self.record.calls), count
        yield
        self._alike = 1
        for call in self.record.calls[first:]:
            call.times *= count

    def product(self, a: Symbolic, b: Symbolic) -> Symbolic:
        """A product of matrices; each is saved, as the kernel has it, for the gradient of the other."""
        if a.ndim == 2 < b.ndim and not self._frees:  # noqa: PLR2004 - as torch folds a matrix times many
            return self.product(b.mT, a.mT).mT.contiguous()
        if b.ndim == 2 < a.ndim and not (self._frees and _is_spread(a)):  # noqa: PLR2004
            batch, merged = a.shape[:-2], [a.reshape(-1, a.shape[-1]), b] if self.follows_memory else [a, b]
        else:
            batch, merged = broadcast(a.shape[:-2], b.shape[:-2]), [a, b]
            if self.follows_memory:
                merged = [one.expand(*batch, *one.shape[-2:]).reshape(-1, *one.shape[-2:]) for one in merged]
        result = self.call("aten::matmul", (a, b), (*batch, a.shape[-2], b.shape[-1]), factors=(a, b))
        return self.save(result, *(one for one, of in zip(merged, (b, a), strict=True) if of.learns))

    # ── leaves ──

    def component(self, name: str, component: Component, place: Place, *inputs: Any) -> Any:
        """Another component: its program."""
        titles, self.titles = self.titles, component.titles
        result = component.forward(self, inputs[0], place, *inputs[1:])
        self.titles = titles
        return result

    def repeats(self, count: Number) -> Iterator[int]:
        """In letters the first turn, and one that stands for all others."""
        if type(count) is int:
            yield from range(count)
            return
        yield 0
        self._steps = count - 1
        yield 0
        self._steps = None

    def each_token(
        self, step: Callable[[Any, Any], tuple[Sequence[Any], Any]], x: Any, state: Any
    ) -> tuple[Sequence[Sequence[Any]], Any]:
        """The first step, and one that stands for all others."""
        parts = x if isinstance(x, tuple) else (x,)
        first, second = (tuple(part.narrow(1, at, 1) for part in parts) for at in range(2))
        more, self._steps = parts[0].shape[1] - 1, 1
        outputs, state = step(first if isinstance(x, tuple) else first[0], state)
        found = [[one] for one in outputs]
        if more or lettered(more):
            self._steps = more
            again, state = step(second if isinstance(x, tuple) else second[0], state)
            for each, one in zip(found, again, strict=True):
                each.append(one.narrow(1, 0, more))
        self._steps = None
        return found, state

    def handed_over(self, number: int, shapes: Sequence[Shape]) -> Sequence[Symbolic]:
        return [self.input(*shape, raw=False) for shape in shapes]

    def computed_before(self, compute: Callable[[], Any]) -> Any:
        before, frees, record = len(self.rows), self._frees, self.record
        if self.decodes:  # it takes no memory of the step's
            self._frees, self.record = False, Record()
        given = compute()
        self._frees, self.record = frees, record
        if self.decodes:
            for path in [*self.rows][before:]:
                self.rows[path] = without_work(self.rows[path])
        return given

    def of_memory(self, name: str, compute: Callable[[], tuple[Any, ...]], title: str) -> tuple[Any, ...]:
        given: tuple[Any, ...] = self.computed_before(compute)
        if self.decodes:
            elements = sum(one.numel() for one in given) // self.batch
            self.rows[name] = Operation(path=name, title=title, cache=Cached(elements, cross_attention=True))
            self.record.operands[self.prefix + name] += sum(map(self._bytes, given))
        return given

    def started(self, name: str, first: Sequence[Any]) -> Sequence[Symbolic]:
        return [self.past(*one.shape) for one in first]

    def hand_over(self, *states: Sequence[Any]) -> None:
        self._results += [one for state in states for one in state]

    def state(self, name: str, *shapes: Shape) -> Sequence[Symbolic]:
        found = [self.past(self.batch, *shape) for shape in shapes]
        for one in found:
            one.learns = False  # before the first step it is a constant
        return found

    def per_sample(self, x: Any, like: Any) -> Any:
        if not x.once or like.once:
            return x
        of_each: Symbolic = x.expand(like.shape[0], *x.shape[1:])
        of_each.once = False
        return of_each

    def run(
        self, name: str, leaf: Leaf, *inputs: Any, title: str | None = None, label: str | None = None, **facts: Any
    ) -> Any:
        path = self.prefix + name.replace(".", "_")
        now = self._now = _RunningLeaf(path)
        result = leaf.traced(self, *inputs)
        self._now = None
        outputs = result if isinstance(result, tuple) else (result,)
        if self.follows_memory:
            self._remember(path, now, (*inputs, *outputs))
        statistics = now.facts.pop("statistics", 0)
        matrix = None
        if facts.pop("matrix", False):  # a fused kernel makes none
            matrix = self._matrix(path, inputs, () if statistics else outputs, statistics)
        if (row := self.rows.get(path)) is not None:
            if matrix is not None and row.matrix is not None:
                self.rows[path] = msgspec.structs.replace(row, matrix=row.matrix.joined(matrix))
            return result
        last, own = name.rpartition(".")[2], now.facts.pop("title", None)
        title = title or self.titles.get(last) or own or TITLES.get(last)
        if title is None:
            raise LookupError(f"the leaf {name!r} has no title: name it in `titles` of its class, or give it `title=`")
        if matrix is not None and (matrix.entries or matrix.statistics):
            facts["matrix"] = matrix
        once = all(one.once for one in (*inputs, *outputs) if isinstance(one, Symbolic))
        self.rows[path] = Operation(**{
            "path": path, "title": title if label is None else f"{title} ({label})", "params": now.params, "once": once,
            "takes_input": now.takes_input, **now.facts, **facts,
        })  # fmt: skip
        return result

    def _matrix(self, path: str, inputs: Iterable[Any], outputs: Iterable[Any], statistics: Number) -> Matrix:
        """The attention matrix that a leaf has made, if it has not worked in place, and those that are alive.

        Those are alive to which a variable of the program refers, as in torch, whose memory is freed in the same way.
        """
        given = [one.storage for one in inputs if isinstance(one, Symbolic)]
        self._matrices = [one for one in self._matrices if one[0]() is not None]
        steps = 1 if self._steps is None else self._steps
        entries: Number = 0
        for one in outputs:
            if one.storage not in given:
                made = one.numel() // self.batch
                self._matrices.append((ref(one.storage), made))
                if one.storage.origin:
                    self._saved_matrices.append((path, one.storage.origin, made * steps))
                entries += made
        return Matrix(entries * steps, sum([size for _, size in self._matrices]), 0, statistics)

    def rows_with_costs(self, result: Any) -> tuple[Operation, ...]:
        """The rows with their costs, and those of the backward pass from a result: MACs, and matrices that it saves."""
        outputs = (*(result if isinstance(result, tuple) else (result,)), *self._results)
        reached = _made_of(one.storage.origin for one in outputs)
        products = [call for call in self.record.calls if call.backward_macs is not None]
        self.record.calls += [
            TapeCall(call.operation, call.module, Cost(macs=call.backward_macs), "backward", call.times)
            for call in reversed(products)
            if call.result in reached or self.decodes  # a decode step leaves more than its output
        ]
        costs, backward = self.record.costs_by_module(), self.record.backward_by_module()
        for path, row in self.rows.items():
            of_row = [each for each in costs[path].items() if each[1]] if path in costs else []
            for quantity, amount in of_row:
                force_setattr(row, quantity, amount)
            if row.once and row.matrix is None and not of_row:
                force_setattr(row, "once", False)
        for path in dict.fromkeys(call.module for call in products):
            if backward[path] != 2 * costs[path]["macs"]:  # of each product two, where a row does not say
                force_setattr(self.rows[path], "backward_macs", backward[path])
        for path, origin, entries in self._saved_matrices:
            row = self.rows[path]
            if origin.saved and row.matrix is not None:
                made, alive, saved, statistics = row.matrix
                force_setattr(row, "matrix", Matrix(made, alive, saved + entries, statistics))
        return tuple(self.rows.values())

    def unused(self, name: str, leaf: Leaf, x: Any) -> None:
        aside = Tape()
        aside.titles = self.titles
        aside.run(name, leaf, aside.input(*x.shape[1:], raw=False))
        self.rows |= {path: without_work(row) for path, row in aside.rows.items()}

    def _remember(self, path: str, now: _RunningLeaf, given: Iterable[Any]) -> None:
        """The bytes of a call: what it saves first, and what it reads and writes."""
        steps = 1 if self._steps is None else self._steps
        self.save_storages(path, now.saves)
        tensors = (one for one in given if isinstance(one, Symbolic))
        seen = {(id(one.storage), one.shape, one.strides, one.offset): one for one in tensors}
        self.record.operands[path] += sum(map(self._bytes, seen.values())) * steps

    def _bytes(self, x: Symbolic) -> Number:
        return x.numel() * width_of(x.storage.type, self.element)

    def save_storages(self, path: str, tensors: Iterable[Symbolic]) -> None:
        """Autograd saves the storages of these in a row, where it has not saved them before."""
        for one in tensors:
            if not one.storage.held and not one.storage.saved:
                one.storage.saved = True
                each = one.storage.elements * width_of(one.storage.type, self.element)
                if one.storage.of_step and self._steps is not None:
                    each *= self._steps
                is_mask = one.once and one.storage.type == "bool"
                self.record.saved.append(SavedStorage(None, each, path, 0, is_mask, one.storage.enters_block))


def _made_of(origins: Iterable[Origin | None]) -> set[Origin | None]:
    """All that these are made of, and they themselves; and None, of constants."""
    left = [*origins]
    found: set[Origin | None] = {None}
    while left:
        origin = left.pop()
        if origin is not None and origin not in found:
            found.add(origin)
            left += origin.of
    return found


def _is_spread(x: Symbolic) -> bool:
    """Would its rows have to be copied to lie beside each other? Where no gradient is asked for, torch avoids that."""
    return view_strides(x.shape, x.strides, (prod(x.shape[:-1]), x.shape[-1])) is None


def _in_order_of(like: Symbolic, shape: Shape) -> Shape:
    """Strides without gaps, with the axes in the order in which those of `like` lie in memory."""
    if len(like.strides) != len(shape):
        return contiguous_strides(shape)
    outermost = prod(shape) + 1  # an axis along which a view repeats itself
    order = sorted(range(len(shape)), key=lambda axis: (-(like.strides[axis] or outermost), axis))
    dense = contiguous_strides(tuple(shape[axis] for axis in order))
    return tuple(dense[order.index(axis)] for axis in range(len(shape)))


def without_work(row: Operation) -> Operation:
    """`row` with its parameters only: it does not run in this pass."""
    nothing = dict.fromkeys(("macs", "flops", "attention_entries", "comparisons", "moved"), 0)
    return msgspec.structs.replace(row, weights_read=WeightsRead(0), pairs=None, core=None, matrix=None, **nothing)
