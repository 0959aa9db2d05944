"""Tensors of a mixture of experts beside its networks: choice, places of the tokens' copies, gather and scatter."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from xfcost.formulas.component import Operation
from xfcost.formulas.tensors import Shape, within
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Saved, Tensor, Tensors

_PLACE: Final = "place"
_COUNTS: Final = "counts"
_FILLED: Final = "filled"
_PLACED: Final = "placed"


class ExpertTensors(NamedTuple):
    """N tokens of width d, each with A of E experts, and the pairs of token and expert that are computed."""

    tokens: Number
    width: Number
    experts: int
    active: int
    computed: Number
    slots: bool
    """Has an expert a fixed number of slots?"""

    @property
    def _copies(self) -> Shape:
        return self.tokens, self.active

    @property
    def _every(self) -> Tensor:
        return Tensor(BEFORE, (self.tokens, self.experts))

    @property
    def _arrangement(self) -> tuple[Tensor, ...]:
        """Tokens of the rows, places of the copies; then rows of each expert, or which slots and copies have one."""
        rows, places = Tensor(OUTPUT, (self.computed,), "int64"), Tensor(_PLACE, self._copies, "int64")
        if self.slots:
            return rows, places, Tensor(_FILLED, (self.computed,), "bool"), Tensor(_PLACED, self._copies, "bool")
        return rows, places, self._counts

    @property
    def _counts(self) -> Tensor:
        return Tensor(_COUNTS, (self.experts,), "int64", once=True)

    @property
    def _read_arrangement(self) -> tuple[Tensor, ...]:
        first, *others = self._arrangement
        return msgspec.structs.replace(first, name="arrange"), *others

    def best_groups(self, groups: int, active: int, *, top_two: bool) -> Tensors:
        """The groups that are chosen and a mask of the others are saved, and what the groups' scores are made of."""
        score = (
            (Tensor("best two", (self.tokens, groups, 2), "int64"),)
            if top_two
            else (Tensor("scores", (self.tokens, groups)),)
        )
        chosen = Tensor("groups", (self.tokens, active), "int64")
        closed = Tensor("closed", (self.tokens, groups), "bool")
        writes = (msgspec.structs.replace(self._every, name=OUTPUT),)
        return Tensors((self._every,), writes, () if top_two else (Saved(BEFORE),), (*score, chosen, closed))

    @property
    def choice(self) -> Tensors:
        """A top-A saves its numbers, a maximum doesn't."""
        chosen = Tensor(OUTPUT, self._copies, "int64", constant=True)
        return Tensors((self._every,), (chosen,), (Saved(OUTPUT),) if self.active > 1 else ())

    def weights(self, *, normalize: bool) -> Tensors:
        """All probabilities and the choice are saved; the chosen ones and their sum, where they are divided by it."""
        every = msgspec.structs.replace(self._every, name="probabilities")
        chosen = Tensor("choose", self._copies, "int64")
        makes = (Tensor("chosen", self._copies), Tensor("sum", (self.tokens,))) if normalize else ()
        return Tensors((every, chosen), (Tensor(OUTPUT, self._copies),), (Saved(every.name), Saved("choose")), makes)

    @property
    def arrangement(self) -> Tensors:
        """Integers, without a gradient."""
        return Tensors((Tensor("choose", self._copies, "int64"),), self._arrangement)

    @property
    def gather(self) -> Tensors:
        """The tokens of the rows are saved, and a mask of the empty slots."""
        reads = (Tensor(INPUT, (self.tokens, self.width)), *self._read_arrangement)
        empty = (Tensor("empty", (self.computed,), "bool"),) if self.slots else ()
        return Tensors(reads, (Tensor(OUTPUT, (self.computed, self.width)),), (Saved("arrange"),), empty)

    def of_each(self, row: Operation) -> Operation:
        """A row of the network, of all experts: its maps read how many rows each expert has."""
        row = within(row, "experts_", "gather")
        if self.slots or not row.params or row.tensors is None:
            return row
        tensors = msgspec.structs.replace(row.tensors, reads=(*row.tensors.reads, self._counts))
        return msgspec.structs.replace(row, tensors=tensors)

    @property
    def scatter(self) -> Tensors:
        """The places of the copies are saved, and a mask of those that were dropped."""
        reads = (Tensor(BEFORE, (self.computed, self.width)), *self._read_arrangement)
        dropped = (Tensor("dropped", self._copies, "bool"),) if self.slots else ()
        return Tensors(reads, (Tensor(OUTPUT, (*self._copies, self.width)),), (Saved(_PLACE),), dropped)
