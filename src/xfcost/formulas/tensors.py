"""Declarations of tensors (`ledger/tensors.py`) that many rows share: what autograd saves of a map, a product, a norm.

What torch saves: a linear map and a convolution their input, a product of two activations each operand for the gradient
of the other, a softmax its output, a norm its input and its statistics, a sum and a constant factor nothing.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import msgspec

from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import (
    BEFORE,
    INPUT,
    OUTPUT,
    Copy,
    Exchanged,
    Saved,
    Tensor,
    Tensors,
    Widened,
    merged_heads,
)
from xfcost.ledger.units import Number

Shape = tuple[Number, ...]

# What the element-wise operations save of their input and of their output.
_OF_INPUT: Final = frozenset({"gelu", "gelu_tanh", "gelu_quick", "silu", "relu6", "softplus"})
_OF_OUTPUT: Final = frozenset({"relu", "softmax", "exp", "sigmoid", "tanh"})
_OF_NEITHER: Final = frozenset({"add", "multiply"})
# Those with one more tensor of their own, as large as their input: x·sigmoid(1.702x) saves the sigmoid.
_OF_INSIDE: Final = frozenset({"gelu_quick"})


def mapped(reads: Shape, writes: Shape) -> Tensors:
    """A linear map of the row before: it saves its input."""
    return Tensors((Tensor(BEFORE, reads),), (Tensor(OUTPUT, writes),), (Saved(BEFORE),))


def convolved(reads: Shape, writes: Shape) -> Tensors:
    """A convolution of the row before, which it saves."""
    return Tensors((Tensor(BEFORE, reads),), (Tensor(OUTPUT, writes, by_channel=True),), (Saved(BEFORE),))


def saving_input(reads: Number, writes: Number, *makes: Tensor) -> Tensors:
    """An operation on the row before, which it saves (a pool), with the tensors that it makes (indices of maxima)."""
    return Tensors((Tensor(BEFORE, (reads,)),), (Tensor(OUTPUT, (writes,), like=BEFORE),), (Saved(BEFORE),), makes)


def adaptive_mean(sides: Shape, pooled_sides: Shape, width: Number) -> Tensors:
    """A grid averaged to another: its input is saved, but for a single mean."""
    read, written = prod(sides) * width, prod(pooled_sides) * width
    return saving_input(read, written) if prod(pooled_sides) > 1 else copied((read,), (written,))


def copied(reads: Shape, writes: Shape, *names: str) -> Tensors:
    """A copy of the row before, or of the tensors of these names, each seen as `reads`: nothing is saved."""
    return Tensors(tuple([Tensor(name, reads) for name in names or (BEFORE,)]), (Tensor(OUTPUT, writes),))


def cropped(row: Operation, padding: Number) -> Operation:
    """`row`, of whose output the tokens of `padding` are left out, and stay in memory."""
    if row.tensors is None or padding == 0:
        return row
    output, *others = row.tensors.writes
    return reading(row, writes=(msgspec.structs.replace(output, cropped=True), *others))


def view(reads: Shape, writes: Shape, name: str = BEFORE) -> Tensors:
    """A part of a tensor, or the whole in another shape, without a copy."""
    return Tensors((Tensor(name, reads),), (Tensor(OUTPUT, writes, view_of=name),))


def passed(shape: Shape, name: str = BEFORE) -> Tensors:
    """A tensor itself, as it is: among the operands it counts once."""
    return view(shape, (0,), name)


def product(first: Tensor, second: Tensor, writes: Shape, *merged: Copy | None) -> Tensors:
    """A product of two activations, of rows or of elements: each is saved for the gradient of the other.

    `merged` are the copies of the two that a product of matrices makes.
    """
    copies = (*merged, None, None)
    saves = (Saved(first.name, second.name, copies[0]), Saved(second.name, first.name, copies[1]))
    return Tensors((first, second), (Tensor(OUTPUT, writes),), saves)


def by_element(work: str, elements: Number, names: tuple[str, ...]) -> Tensors | None:
    """An element-wise operation on tensors of `elements`; None where `work` doesn't say what is saved.

    A factor or summand that isn't named is a constant.
    """
    reads = tuple([Tensor(name, (elements,)) for name in names])
    if work == "multiply" and len(reads) > 1:
        return product(reads[0], reads[1], (elements,))
    saves: tuple[Saved, ...] = ()
    if work in _OF_INPUT:
        saves = (Saved(names[0]),)
    elif work in _OF_OUTPUT:
        saves = (Saved(OUTPUT),)
    elif work not in _OF_NEITHER:
        return None
    makes = (Tensor("inside", (elements,)),) if work in _OF_INSIDE else ()
    return Tensors(reads, (Tensor(OUTPUT, (elements,), like=names[0]),), saves, makes)


def normed(kind: str, tokens: Number, width: Number) -> Tensors:
    """A norm of the row before.

    layer_norm   x, mean and 1/σ of each token
    rms_norm     x and x/rms in float32 or wider, and 1/rms of each token
    batch_norm   x, mean and 1/σ of each channel, of the whole batch
    group_norm   x with its axes exchanged, mean and 1/σ of the sample
    affine       x
    """
    shape = (tokens, width)
    saved = Saved(BEFORE)
    makes: tuple[Tensor, ...] = ()
    match kind:
        case "layer_norm":
            makes = (Tensor("statistics", (tokens, 2), "statistic"),)
        case "rms_norm":
            saved = Saved(BEFORE, copied=Widened(shape))
            makes = Tensor("statistics", (tokens,), "statistic"), Tensor("normed", shape, "statistic")
        case "batch_norm":
            makes = (Tensor("statistics", (width, 2), "statistic", once=True),)
        case "group_norm":
            saved, makes = Saved(BEFORE, copied=Exchanged(shape, shape)), (Tensor("statistics", (2,)),)
    return Tensors((Tensor(BEFORE, shape),), (Tensor(OUTPUT, shape),), (saved,), makes)


def skipped(name: str, other: str, elements: Number) -> Tensors:
    """A tensor plus another one times weights, which is saved."""
    both = (Tensor(name, (elements,)), Tensor(other, (elements,)))
    return Tensors(both, (Tensor(OUTPUT, (elements,)),), (Saved(other),))


def gated(factor: str, gate: str, elements: Number, *, act: str) -> Tensors:
    """A factor times act(gate), in one leaf: both factors are saved, and what the activation saves."""
    both = (Tensor(factor, (elements,)), Tensor(gate, (elements,)))
    saves = (Saved(factor), *((Saved(gate),) if act in _OF_INPUT else ()))
    return Tensors(both, (Tensor(OUTPUT, (elements,)),), saves, (Tensor("activated", (elements,)),))


def weights(shape: Shape) -> Tensors:
    """A table of weights that later rows read by its row's name; the stream passes by."""
    return Tensors((), (Tensor(OUTPUT, shape, once=True, held=True),), beside=True)


NOTHING: Final = Tensors(beside=True)
"""A row that runs nothing."""


def reading(row: Operation, *names: str, **changes: Any) -> Operation:
    """`row`, whose operands are the tensors of these names instead of the row before; with further `changes`."""
    if row.tensors is None:
        return row
    tensors = row.tensors.reading(*names) if names else row.tensors
    return msgspec.structs.replace(row, tensors=msgspec.structs.replace(tensors, **changes))


def within(row: Operation, prefix: str, given: str) -> Operation:
    """`row` of a component inside another, which calls its rows `prefix…` and gives it the tensor `given`."""

    def named(name: str) -> str:
        if name == INPUT:
            return given
        return name if name.startswith("<") else prefix + name

    tensors = None if row.tensors is None else row.tensors.renamed(named)
    return msgspec.structs.replace(row, path=prefix + row.path, tensors=tensors)


def channels_first(row: Operation, name: str, tokens: Number, width: Number) -> Operation:
    """`row`, a map or norm of a grid `name` whose tokens lie channel by channel: it merges them with the batch."""
    return saving_copies(row, merged_heads((tokens, width), width, tokens), name)


def saving_copies(row: Operation, copied: Copy, name: str = BEFORE) -> Operation:
    """`row`, which copies the tensor `name` before it saves it."""
    if row.tensors is None:
        return row
    saves = (msgspec.structs.replace(one, copied=copied) if one.name == name else one for one in row.tensors.saves)
    return msgspec.structs.replace(row, tensors=msgspec.structs.replace(row.tensors, saves=tuple(saves)))


def of_input(row: Operation) -> Operation:
    """`row`, which reads its component's input instead of the row before."""
    return reading(row, INPUT)
