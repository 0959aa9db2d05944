"""What a run does: its operations, and what they make, free, read, write and save. Imports no torch.

A tape fills a record without numbers, the recorder from a running model; its sums do not know which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, Literal, NamedTuple, TypeVar

from xfcost.ledger.units import Number

Phase = Literal["forward", "backward", "again"]
"""`again`: a forward that a backward pass runs again, as checkpointing and reversible residuals do."""


@dataclass(slots=True)
class Call:
    """An operation that ran."""

    operation: str
    """`aten::addmm`, `mylib::scan`, `scaled_dot_product_attention`."""
    module: str
    """What runs it: a module of a torch model (the model itself is ""), the row of a program's leaf."""
    costs: Counter[str] | None
    """None: no table knows it."""
    phase: Phase = "forward"
    times: Number = 1
    """For how many steps or blocks it stands."""


AnyCall = TypeVar("AnyCall", bound=Call)


class SavedStorage(NamedTuple):
    """Memory that autograd saves for the backward pass."""

    storage: int | None
    """Its number; None where a few steps of a loop stand for many."""
    nbytes: int
    module: str
    """What runs: a module of a torch model, the row of a program's leaf."""
    newest_node: int = 0
    """The node that saves it: the one that was made last."""
    is_mask: bool = False
    """Is it a mask, the same for all samples and heads?"""
    is_input: bool = False
    """Is it the input of the block that saves it?"""
    times: int = 1
    """For how many blocks it stands."""


@dataclass(slots=True)
class Record(Generic[AnyCall]):
    """One run."""

    calls: list[AnyCall] = field(default_factory=list)
    """In order; of a tape those that cost something."""
    saved: list[SavedStorage] = field(default_factory=list)
    weights: set[int | None] = field(default_factory=set)
    """Storages of parameters and buffers."""
    changes: list[tuple[int, int]] = field(default_factory=list)
    """Storages and their bytes, in the order in which they were made and, with bytes below 0, freed."""
    operands: Counter[str] = field(default_factory=Counter)
    """Bytes of the tensors that enter and leave each leaf, each once in a call: those that a tape has run."""

    def peak_bytes(self, without: Collection[int | None] = ()) -> int:
        """The most bytes of live storages at once, those of these numbers left out."""
        return max(accumulate(nbytes for storage, nbytes in self.changes if storage not in without), default=0)

    def first_saved(self) -> Iterator[SavedStorage]:
        """What is saved, each storage where it is saved first; parameters and buffers left out."""
        seen = set(self.weights)
        for one in self.saved:
            if one.storage is None or one.storage not in seen:
                yield one
            if one.storage is not None:
                seen.add(one.storage)

    def backward_calls(self) -> Iterator[tuple[str, AnyCall]]:
        """Each call of the backward pass, those that run a forward again too, with the module that it belongs to."""
        yield from ((call.module, call) for call in self.calls if call.phase != "forward")

    def costs_by_module(self) -> dict[str, Counter[str]]:
        """The costs of what each module runs in the forward pass, and its children do not."""
        return costs_by_module((one.module, costs_of(one)) for one in self.calls if one.phase == "forward")

    def backward_by_module(self) -> Counter[str]:
        """MACs of the backward pass of what each module runs, recomputed forwards included."""
        found: Counter[str] = Counter()
        for module, call in self.backward_calls():
            found[module] += costs_of(call)["macs"]
        return found

    def add(self, other: Record[AnyCall], times: int, *, saves: bool = True) -> None:
        """Take what `other` has, so many `times`, without its changes; not what it `saves` where that is undone."""
        for call in other.calls:
            call.times *= times
        self.calls += other.calls
        self.saved += [one._replace(times=one.times * times) for one in other.saved if saves]
        for module, nbytes in other.operands.items():
            self.operands[module] += nbytes * times

    def saved_by_module(self) -> Counter[str]:
        """Bytes that each module is the first to save."""
        return _by_module(self.first_saved())

    def masks_by_module(self) -> Counter[str]:
        """Those of them that are masks, the same for all samples and heads."""
        return _by_module(one for one in self.first_saved() if one.is_mask)

    def inputs_by_module(self) -> Counter[str]:
        """Those of them that are the input of the module's block."""
        return _by_module(one for one in self.first_saved() if one.is_input)


def costs_of(call: Call) -> Counter[str]:
    """Of all times; none where no table knows it."""
    if call.costs is None or (call.times == 1 and type(call.times) is int):  # a 1 in letters multiplies their form
        return call.costs or Counter()
    return Counter({quantity: amount * call.times for quantity, amount in call.costs.items()})


def costs_by_module(parts: Iterable[tuple[str, Mapping[str, Number]]]) -> dict[str, Counter[str]]:
    """The sums of costs, each with its module."""
    found: dict[str, Counter[str]] = {}
    for module, costs in parts:
        sums = found.get(module)
        if sums is None:
            sums = found[module] = Counter()
        for quantity, amount in costs.items():
            sums[quantity] = sums.get(quantity, 0) + amount
    return found


def _by_module(saved: Iterable[SavedStorage]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in saved:
        found[one.module] += one.nbytes * one.times
    return found
