"""Tensors without numbers: a shape, strides and a storage, with the methods of a torch tensor that programs use.

Sizes are ints, or ints in letters. Views share their storage; whether a change of shape copies follows from the
strides, as torch decides it. What costs something is noted on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from xfcost.ledger.tensors import Type
from xfcost.ledger.units import Number

if TYPE_CHECKING:
    from xfcost.program.tape import Tape

Shape = tuple[Number, ...]


class Origin:
    """What a tensor with a gradient is made of, which outlives the tensor as autograd's graph does."""

    __slots__ = ("of", "saved")

    def __init__(self, of: Sequence[Origin | None]) -> None:
        self.of = of
        self.saved = False
        """Has autograd saved the tensor?"""


class Storage:
    """Memory that tensors share."""

    __slots__ = ("__weakref__", "elements", "enters_block", "held", "of_step", "origin", "saved", "type")

    def __init__(
        self, elements: Number, type_: Type = "model", origin: Origin | None = None, held: bool = False
    ) -> None:  # fmt: skip
        self.elements, self.type, self.origin = elements, type_, origin
        self.held = held
        """Is it a parameter or a buffer, and no activation?"""
        self.saved = False
        """Has autograd saved it?"""
        self.enters_block = False
        """Is it the input of the block that runs?"""
        self.of_step = False
        """Does each step of a loop over the tokens make one?"""


class LiveStorage(Storage):
    """Memory that is there from when a tensor is made until no tensor is left that shares it."""

    __slots__ = ("changes", "nbytes", "number")

    def __init__(self, elements: Number, type_: Type, nbytes: int, changes: list[tuple[int, int]]) -> None:
        super().__init__(elements, type_)
        self.nbytes, self.changes, self.number = nbytes, changes, len(changes)
        changes.append((self.number, nbytes))

    def __del__(self) -> None:
        self.changes.append((self.number, -self.nbytes))


def contiguous_strides(shape: Shape) -> Shape:
    """The strides of a tensor that lies in memory in the order of its axes."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def view_strides(shape: Shape, strides: Shape, new: Shape) -> Shape | None:
    """The strides of the same memory in another shape, as torch finds them; None where that needs a copy."""
    found: list[Number] = []
    left, base, size = list(new), strides[-1], 1
    for axis in reversed(range(len(shape))):
        size = size * shape[axis]
        if axis and (shape[axis - 1] == 1 or strides[axis - 1] == size * base):
            continue
        taken = 1
        while left and (taken < size or left[-1] == 1):
            found.append(taken * base)
            taken = taken * left.pop()
        if taken != size:
            return None
        base, size = strides[axis - 1], 1
    return None if left else tuple(reversed(found))


def broadcast(*shapes: Shape) -> Shape:
    """The shape of an element-wise operation."""
    whole, *others = shapes
    for shape in others:
        if shape is not whole:
            more = len(shape) - len(whole)
            whole = tuple(map(_wider, (1,) * more + whole, (1,) * -more + shape))
    return whole


def _wider(a: Number, b: Number) -> Number:
    """Of two sizes of an axis the one that is not 1; of equal ones that in letters."""
    if (a == 1) == (b == 1):
        return b if lettered(b) and not lettered(a) else a
    return b if a == 1 else a


def _completed(sizes: Sequence[Number], whole: Shape) -> Shape:
    """`sizes`, with what is left of the elements of `whole` for a -1."""
    if -1 not in sizes:
        return tuple(sizes)
    left = prod(whole) // prod([size for size in sizes if size != -1])
    return tuple([left if size == -1 else size for size in sizes])


def lettered(size: Number) -> bool:
    """Has it a letter, so that it says more than a plain number?"""
    return type(size) is not int


def _elementwise(work: str) -> Callable[..., Symbolic]:
    """The method of an operation by element."""

    def method(x: Symbolic, other: Symbolic | float | None = None) -> Symbolic:
        return x.tape.elementwise(work, x, other)

    return method


class Symbolic(msgspec.Struct, eq=False):
    """A tensor without numbers."""

    tape: Tape
    shape: Shape
    storage: Storage
    strides: Shape
    """Where only costs are asked for, sizes alone are known: there are none."""
    offset: Number
    """Where it begins in its storage, in elements."""
    learns: bool
    """Does it need a gradient?"""
    once: bool = False
    """Is it the same for all samples, made of weights alone?"""
    raw: bool = False
    """Is it the component's input, or made of that and of fixed numbers alone, so that no gradient goes beyond?"""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> Number:
        return prod(self.shape)

    def is_floating_point(self) -> bool:
        return self.storage.type not in {"int64", "bool"}

    def is_complex(self) -> bool:
        return self.storage.type == "complex"

    @property
    def is_contiguous(self) -> bool:
        """Does it lie in memory in the order of its axes, without gaps?"""
        expected = contiguous_strides(self.shape) if self.strides else ()
        return all(size == 1 or a == b for size, a, b in zip(self.shape, self.strides, expected, strict=False))

    # ── views, and copies where there is none ──

    def view_of(self, shape: Shape, strides: Shape, offset: Number = 0) -> Symbolic:
        """The same storage in another shape, from `offset` elements further on."""
        offset = self.offset + offset
        return Symbolic(self.tape, shape, self.storage, strides, offset, self.learns, self.once, self.raw)

    def copied(self) -> Symbolic:
        """A copy that lies in memory in the order of its axes: another layout, which costs nothing by convention."""
        return self.tape.made(self.shape, self, type_=self.storage.type, raw=self.raw)

    def contiguous(self) -> Symbolic:
        return self if self.is_contiguous else self.copied()

    def reshape(self, *shape: Number) -> Symbolic:
        shape = _completed(shape, self.shape)
        strides = view_strides(self.shape, self.strides, shape) if self.strides else ()
        if strides is None:
            return self.copied().view_of(shape, contiguous_strides(shape))
        return self.view_of(shape, strides)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Symbolic:
        shape, rank = self.shape, len(self.shape)
        first, last = start_dim % rank, end_dim % rank
        return self.reshape(*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])

    def unflatten(self, dim: int, sizes: Sequence[Number]) -> Symbolic:
        axis = dim % len(self.shape)
        inner = _completed(sizes, self.shape[axis : axis + 1])
        steps = [self.strides[axis] * step for step in contiguous_strides(inner)] if self.strides else ()
        return self._replaced(axis, inner, steps)

    def _replaced(self, axis: int, sizes: Sequence[Number], steps: Sequence[Number], offset: Number = 0) -> Symbolic:
        """The same with other sizes and strides in the place of an axis."""
        shape = (*self.shape[:axis], *sizes, *self.shape[axis + 1 :])
        strides = (*self.strides[:axis], *steps, *self.strides[axis + 1 :]) if self.strides else ()
        return self.view_of(shape, strides, offset)

    def permute(self, *dims: int) -> Symbolic:
        shape, strides = ([sizes[dim] for dim in dims] if sizes else () for sizes in (self.shape, self.strides))
        return self.view_of(tuple(shape), tuple(strides))

    def transpose(self, dim0: int, dim1: int) -> Symbolic:
        shape, strides = [*self.shape], [*self.strides]
        for sizes in (shape, strides) if strides else (shape,):
            sizes[dim0], sizes[dim1] = sizes[dim1], sizes[dim0]
        return self.view_of(tuple(shape), tuple(strides))

    @property
    def mT(self) -> Symbolic:
        return self.transpose(-2, -1)

    def movedim(self, source: int, destination: int) -> Symbolic:
        dims = list(range(self.ndim))
        dims.insert(destination % self.ndim, dims.pop(source % self.ndim))
        return self.permute(*dims)

    def unsqueeze(self, dim: int) -> Symbolic:
        axis = dim % (self.ndim + 1)
        steps = [
            size * step for size, step in zip(self.shape[axis : axis + 1], self.strides[axis : axis + 1], strict=False)
        ]
        strides = (*self.strides[:axis], *(steps or [1]), *self.strides[axis:]) if self.strides else ()
        return self.view_of((*self.shape[:axis], 1, *self.shape[axis:]), strides)

    def squeeze(self, dim: int) -> Symbolic:
        return self.select(dim, 0)

    def select(self, dim: int, index: int) -> Symbolic:
        axis = dim % self.ndim
        place = index if index >= 0 else self.shape[axis] + index
        return self._replaced(axis, (), (), place * self.strides[axis] if self.strides else 0)

    def narrow(self, dim: int, start: Number, length: Number) -> Symbolic:
        axis = dim % self.ndim
        steps = self.strides[axis : axis + 1]
        return self._replaced(axis, (length,), steps, start * steps[0] if steps else 0)

    def split(self, sizes: Sequence[Number], dim: int = 0) -> Sequence[Symbolic]:
        starts = accumulate(sizes, initial=0)
        return [self.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=False)]

    def unfold(self, dimension: int, size: Number, step: Number) -> Symbolic:
        """Windows along an axis, which may overlap: their positions are the last axis."""
        axis = dimension % self.ndim
        own = self.strides[axis : axis + 1]
        windows = self._replaced(axis, ((self.shape[axis] - size) // step + 1,), [step * one for one in own])
        return windows.view_of((*windows.shape, size), (*windows.strides, *own))

    def chunk(self, chunks: int, dim: int = 0) -> Sequence[Symbolic]:
        whole = self.shape[dim]
        size = -(-whole // chunks)
        count = -(-whole // size)
        return self.split([*[size] * (int(count) - 1), whole - size * (int(count) - 1)], dim)

    def unbind(self, dim: int = 0) -> Sequence[Symbolic]:
        return [self.select(dim, index) for index in range(int(self.shape[dim]))]

    def expand(self, *sizes: Number) -> Symbolic:
        new = len(sizes) - self.ndim
        old = (*[1] * new, *self.shape)
        shape = tuple([own if size == -1 else size for own, size in zip(old, sizes, strict=True)])
        if not self.strides:
            return self.view_of(shape, ())
        steps = zip(old, (*[0] * new, *self.strides), shape, strict=True)
        return self.view_of(shape, tuple(step if size == wanted else 0 for size, step, wanted in steps))

    def detach(self) -> Symbolic:
        """The same memory, where no gradient passes."""
        same = self.view_of(self.shape, self.strides)
        same.learns = False
        return same

    # ── work ──

    __neg__ = _elementwise("neg")
    __add__ = __radd__ = __sub__ = __rsub__ = _elementwise("add")
    __mul__ = __rmul__ = _elementwise("mul")
    __truediv__ = _elementwise("div")
    __pow__ = _elementwise("pow")
    log = _elementwise("log")
    rsqrt = _elementwise("rsqrt")
    exp = _elementwise("exp")
    sigmoid = _elementwise("sigmoid")
    tanh = _elementwise("tanh")
    relu = _elementwise("relu")
    sin = _elementwise("sin")
    square = _elementwise("square")

    def __matmul__(self, other: Symbolic) -> Symbolic:
        return self.tape.product(self, other)

    def exp_(self) -> Symbolic:
        self.tape.call("aten::exp_", (self,), self.shape, like=self)
        return self.tape.save(self, self)

    def logsumexp(self, dim: int, *, keepdim: bool = False) -> Symbolic:
        result = self.tape.reduced("logsumexp", self, dim, keepdim=keepdim)
        self.tape.save(result, self, result)
        return result

    def clamp(self, min: float | None = None, max: float | None = None) -> Symbolic:  # noqa: A002 - as torch calls them
        result = self.tape.call("aten::clamp", (self, min, max), self.shape, like=self, type_=self.storage.type)
        self.tape.save(result, self)
        return result

    def maximum(self, other: Symbolic) -> Symbolic:
        return self.tape.save(self.tape.elementwise("maximum", self, other), self, other)

    def cumsum(self, dim: int) -> Symbolic:
        return self.tape.elementwise("cumsum", self)

    def tril(self) -> Symbolic:
        return self.tape.call("aten::tril", (self,), self.shape)

    def sum(self, dim: int, *, keepdim: bool = False) -> Symbolic:
        return self.tape.reduced("sum", self, dim, keepdim=keepdim)

    def mean(self, dim: int, *, keepdim: bool = False) -> Symbolic:
        return self.tape.reduced("mean", self, dim, keepdim=keepdim)

    def amax(self, dim: int | tuple[int, ...], *, keepdim: bool = False) -> Symbolic:
        result = self.tape.reduced("amax", self, dim, keepdim=keepdim)
        self.tape.save(result, self, result)
        return result

    def argmax(self, dim: int, *, keepdim: bool = False) -> Symbolic:
        return self.tape.reduced("argmax", self, dim, keepdim=keepdim, type_="int64")

    def any(self, dim: int) -> Symbolic:
        return self.tape.reduced("any", self, dim, keepdim=False, type_="bool")

    def topk(self, k: Number, dim: int) -> tuple[Symbolic, Symbolic]:
        axis = dim % self.ndim
        shape = (*self.shape[:axis], k, *self.shape[axis + 1 :])
        values = self.tape.call("aten::topk", (self, k, dim), shape)
        indices = self.tape.made(shape, self, type_="int64")
        self.tape.save(values, indices)
        return values, indices

    def gather(self, dim: int, index: Symbolic) -> Symbolic:
        return self.tape.save(self.tape.call("aten::gather", (self, index), index.shape), self, index)

    def scatter_add(self, dim: int, index: Symbolic, src: Symbolic) -> Symbolic:
        return self.tape.save(self.tape.call("aten::scatter_add", (self, dim, index, src), self.shape), index)

    def softmax(self, dim: int) -> Symbolic:
        return self.tape.elementwise("softmax", self)

    def roll(self, shifts: Any, dims: Any) -> Symbolic:
        return self.tape.call("aten::roll", (self,), self.shape, type_=self.storage.type)

    def logical_not(self) -> Symbolic:
        return self.tape.call("aten::logical_not", (self,), self.shape, type_="bool")

    def masked_fill(self, mask: Symbolic, value: float) -> Symbolic:
        result = self.tape.call("aten::masked_fill", (self, mask), broadcast(self.shape, mask.shape), like=self)
        self.tape.save(result, mask)
        return result

    def masked_fill_(self, mask: Symbolic, value: float) -> Symbolic:
        return self.tape.save(self, mask)

    def index_select(self, dim: int, index: Symbolic) -> Symbolic:
        axis = dim % self.ndim
        shape = (*self.shape[:axis], *index.shape, *self.shape[axis + 1 :])
        return self.tape.save(self.tape.call("aten::index_select", (self, index), shape), index)

    def __lt__(self, other: Symbolic | float) -> Symbolic:
        shape = broadcast(self.shape, other.shape) if isinstance(other, Symbolic) else self.shape
        return self.tape.call("aten::lt", (self, other), shape, type_="bool")

    __gt__ = __ge__ = __le__ = logical_or = logical_and = __lt__

    def __getitem__(self, _: Any) -> Any:
        raise TypeError("a program takes parts of tensors by narrow, select, split and chunk")


Tensor: TypeAlias = Symbolic
"""What a program may ask of a tensor, a torch tensor or a symbolic one, in torch's own words."""
