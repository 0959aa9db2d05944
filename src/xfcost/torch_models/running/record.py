"""What ran: the calls of a run, in order, without the values of their tensors."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from xfcost.ledger.record import Call, Record

Place = tuple[Any, Any]
"""A call in the source: the code object that makes it, and the instruction."""


ATTENTION: Final = "scaled_dot_product_attention"
_MARK: Final = "_xfcost_lineage"


class Lineage(NamedTuple):
    """What a tensor comes from."""

    varies: bool = False
    """Does it depend on the model's input?"""
    weights: frozenset[str] = frozenset()
    """The parameters that it is a view of, or computed from alone."""
    computed: bool = False
    """Is it computed from them, and no view? Who reads it reads no parameters."""
    scores: Any = None
    """The operation that made it, if that is a product of two activations; views and element-wise work keep it."""
    mapped: bool = False
    """Did a learned map of the same size follow, such as one that mixes heads?"""
    choice: tuple[int, int] | None = None
    """Of whole numbers that name the largest of each list (by topk, argmax, sort): the call, and how many lists."""
    rows_of: Any = None
    """Of chosen rows of a parameter: the operation that read them, its name and its elements."""
    copies: int = 1
    """How often each of its elements is in memory, of a copy of an expanded view: keys repeated for heads, say."""


def mark(tensor: Tensor, lineage: Lineage) -> None:
    """Say what a tensor comes from, before a run."""
    setattr(tensor, _MARK, lineage)


def marked(tensor: Tensor) -> Lineage | None:
    """What it comes from, if that was noted before the run."""
    return getattr(tensor, _MARK, None)


class TensorRecord(NamedTuple):
    """A tensor of a call, without its values."""

    shape: torch.Size
    """Of a nested tensor, which has none, empty."""
    strides: tuple[int, ...]
    """As it lies in memory; of a sparse one as if it were dense."""
    offset: int
    """Where it begins in its memory, in elements; 0 of a sparse or nested one."""
    dtype: torch.dtype
    numel: int
    tensor: int
    """The same number for the same tensor, in every run of this process."""
    storage: int | None
    """The same number for the same memory, in this run; None of sparse tensors."""
    is_nested: bool
    source: Lineage | None
    """What is known of it from before the run: an input, a parameter."""

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    @property
    def stored(self) -> int:
        """Its elements, those once that an expanded view has several times."""
        return prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride or not size)


@dataclass(slots=True, kw_only=True)
class RecordedCall(Call):
    """An ATen call, or a function of torch that counts as one operation by convention."""

    func: Any
    place: Place
    args: tuple[Any, ...]
    """With records instead of tensors."""
    kwargs: dict[str, Any]
    inputs: list[TensorRecord]
    outputs: list[TensorRecord]
    next_node: int
    """The number that autograd's next node gets once the call has begun: its own is the one before."""
    node: int | None
    """The autograd node that runs it, in a backward pass."""
    number: int
    """How many ATen calls ran before it."""
    weight: str | None = None
    """In a backward pass: the parameter whose gradient it adds up."""
    is_function: bool = False
    """Does it stand for its parts?"""
    seconds: float = 0.0
    parts: list[RecordedCall] = field(default_factory=list)
    """The ATen calls of a function."""
    uncounted: Counter[str] = field(default_factory=Counter)
    """Those of them that no table knows."""
    steps: Any = None
    """Of a loop over tokens that ran a few of its steps: the calls of all steps, for a prediction."""


@dataclass(slots=True)
class RunRecord(Record[RecordedCall]):
    """The record of one run of a torch model."""

    modules: Counter[str] = field(default_factory=Counter)
    """How often each module was called."""
    missing: Counter[str] = field(default_factory=Counter)
    """What ran and was not recorded."""
    repeats: list[list[float]] = field(default_factory=list)
    """Seconds of every call of `dispatched` that is not free, in runs that repeated this one."""
    ran: int = 0
    """How many ATen calls ran."""
    stored_unknown: bool = False
    """Did an operation take a sparse tensor whose number of stored elements depends on its numbers?"""

    def dispatched(self) -> Iterator[RecordedCall]:
        """ATen calls, and fused attention as one; other functions in their parts."""
        for call in self.calls:
            if call.is_function and call.operation != ATTENTION:
                yield from call.parts
            else:
                yield call

    def aten_calls(self) -> Iterator[RecordedCall]:
        """ATen calls only, those of functions included."""
        for call in self.calls:
            yield from call.parts if call.is_function else (call,)

    def backward_calls(self) -> Iterator[tuple[str, RecordedCall]]:
        """Of a backward call the module that made its node; of one that runs again, outside all modules, that too."""
        makers = self.node_modules()
        for call in self.calls:
            if call.phase != "forward":
                again = call.module if call.phase == "again" else ""
                yield again or makers.owner(call.node) or "", call

    def uncounted(self) -> Counter[str]:
        """The operations that no table knows, with how often they ran. Nothing of theirs is counted."""
        unknown = Counter(call.operation for call in self.calls if call.costs is None)
        return sum((call.uncounted for call in self.calls), self.missing + unknown)

    def node_modules(self) -> NodeOwners:
        """The module that made each autograd node."""
        owners = NodeOwners()
        for call in self.aten_calls():
            if call.phase != "backward":
                owners.own(call.next_node, call.module, has_costs=True)
        return owners


class NodeOwners:
    """Which forward call made an autograd node.

    Autograd numbers its nodes in the order in which they are made, and makes a node before its operation runs. The
    nodes made since the last call are a call's; of a custom function, its first part's that has costs.
    """

    def __init__(self) -> None:
        self._next: list[int] = []
        self._owners: list[tuple[Any, bool]] = []

    def own(self, next_node: int, owner: Any, *, has_costs: bool) -> None:
        if not self._next or self._next[-1] != next_node:
            self._next.append(next_node)
            self._owners.append((owner, has_costs))
        elif has_costs and not self._owners[-1][1]:
            self._owners[-1] = (owner, has_costs)

    def owner(self, node: int | None) -> Any:
        """Of a node; None where no call has made it."""
        if node is None:
            return None
        place = self._place(node)
        return self._owners[place][0] if place < len(self._owners) else None

    def before(self, node: int) -> Iterator[Any]:
        """The owners of the nodes before one, the last first."""
        for owner, _ in reversed(self._owners[: self._place(node)]):
            yield owner

    def _place(self, node: int) -> int:
        return bisect_left(self._next, node + 1)
