"""Tensors of LSH attention: hashed, sorted, gathered by chunk, attended over and brought back."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from xfcost.formulas.tensors import product
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Merged, Saved, Tensor, Tensors

# Beside the rows' first outputs.
_UNDO: Final = "places of the tokens"
_GATHERED_VALUES: Final = "gathered values"
_VALUES: Final = "values beside those before them"
_STANDS: Final = "tokens of the keys"
_LOGITS: Final = "log-sum-exps by token"


class LshTensors(NamedTuple):
    """P padded `tokens`, S = R·P `copies` of them in R `rounds`, h `heads` of the width `inner`, m `keys` per query."""

    tokens: Number
    copies: Number
    rounds: Number
    heads: Number
    inner: Number
    keys: Number
    whole: bool
    """Is there one chunk, neither hashed nor sorted?"""

    def _order(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.copies), "int64", constant=True)

    def _rows(self, name: str, times: int = 1) -> Tensor:
        return Tensor(name, (times * self.copies, self.inner))

    def _entries(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.copies, self.keys))

    def _merged(self) -> Merged:
        return Merged((self.tokens, self.inner), self.heads, self.tokens)

    def rotate(self, columns: Number) -> Tensors:
        """No gradient passes."""
        output = Tensor(OUTPUT, (self.heads, self.tokens, columns), constant=True)
        return Tensors((Tensor("query_key", (self.tokens, self.inner)),), (output,))

    def hashed(self, columns: Number) -> Tensors:
        """A number of a bucket per token and round."""
        return Tensors((Tensor(BEFORE, (self.heads, self.tokens, columns)),), (self._order(OUTPUT),))

    @property
    def sort(self) -> Tensors:
        """The order, and the place of each token in it."""
        return Tensors((self._order(BEFORE),), (self._order(OUTPUT), self._order(_UNDO)))

    def _index(self, name: str) -> Saved:
        """Every gather by an order of several rounds copies it: rounds lie innermost."""
        return Saved(name, copied=Exchanged((self.heads, self.copies), (self.rounds, self.tokens)))

    @property
    def gather(self) -> Tensors:
        """What is gathered is saved, and the order."""
        order = self._order("sort")
        reads = tuple(Tensor(name, (self.tokens, self.inner)) for name in ("query_key", "value"))
        saves = tuple(one for read in reads for one in (Saved(read.name), self._index("sort")))
        return Tensors((reads[0], order, reads[1], order), (self._rows(OUTPUT), self._rows(_GATHERED_VALUES)), saves)

    @property
    def normalise(self) -> Tensors:
        """Keys and their factors are saved."""
        read = "query_key" if self.whole else "gather"
        factors = Tensor("factors", (self.heads, self.copies))
        return Tensors((self._rows(read),), (self._rows(OUTPUT),), (Saved(read),), (factors,))

    @property
    def look_back(self) -> Tensors:
        """Keys, the tokens' numbers and values, each twice."""
        reads = (self._rows("normalise"), self._order("sort"), self._rows(_GATHERED_VALUES))
        stands = Tensor(_STANDS, (self.heads, 2 * self.copies), "int64", constant=True)
        return Tensors(reads, (self._rows(OUTPUT, 2), stands, self._rows(_VALUES, 2)))

    @property
    def scores(self) -> Tensors:
        """QKᵀ."""
        shape = self._entries("").shape
        if self.whole:
            return product(self._rows("query_key"), self._rows("normalise"), shape, self._merged(), self._merged())
        return product(self._rows("gather"), self._rows("look_back", 2), shape)

    def mask(self, *, padded: bool, causal: bool) -> Tensors:
        """In place; saved are the masks of padding, of later tokens and of the token itself."""
        masks = 2 if causal else 1
        stands: tuple[Tensor, ...]
        if self.whole:
            stands = (Tensor("tokens", (self.tokens,), "int64", once=True, held=True),)
            makes = [Tensor("masks", (masks, self.tokens, self.tokens), "bool", once=True)]
        else:
            stands = self._order("sort"), Tensor(_STANDS, (self.heads, 2 * self.copies), "int64")
            makes = [Tensor("masks", (masks, *self._entries("").shape), "bool")]
        if padded:
            makes.append(Tensor("padding", (self.heads, 2 * self.copies), "bool"))
        output = Tensor(OUTPUT, (0,), view_of=BEFORE)  # the scores themselves, which count once
        return Tensors((self._entries(BEFORE), *stands), (output,), (), tuple(makes))

    @property
    def logsumexp(self) -> Tensors:
        """The scores and itself are saved."""
        output = Tensor(OUTPUT, (self.heads, self.copies))
        return Tensors((self._entries(BEFORE),), (output,), (Saved(BEFORE), Saved(OUTPUT)))

    @property
    def softmax(self) -> Tensors:
        """Its output is saved."""
        reads = (self._entries("mask"), Tensor("logsumexp", (self.heads, self.copies)))
        return Tensors(reads, (self._entries(OUTPUT),), (Saved(OUTPUT),))

    @property
    def weighted_sum(self) -> Tensors:
        """AV."""
        weights, written = self._entries(BEFORE), (self.copies, self.inner)
        if self.whole:
            return product(weights, self._rows("value"), written, None, self._merged())
        return product(weights, self._rows(_VALUES, 2), written)

    @property
    def undo(self) -> Tensors:
        """What is brought back is saved, and the places."""
        rows, places, output = self._rows(BEFORE), self._order(_UNDO), self._rows(OUTPUT)
        if self.rounds == 1:
            return Tensors((rows, places), (output,), (Saved(BEFORE), self._index(_UNDO)))
        logits = Tensor("logsumexp", (self.heads, self.copies))
        writes = (output, msgspec.structs.replace(logits, name=_LOGITS))
        return Tensors(
            (rows, places, logits, places),
            writes,
            (Saved(BEFORE), self._index(_UNDO), Saved("logsumexp"), self._index(_UNDO)),
        )

    @property
    def round_weights(self) -> Tensors:
        """A softmax over the rounds."""
        shape = (self.heads, self.copies)
        return Tensors((Tensor(_LOGITS, shape),), (Tensor(OUTPUT, shape),), (Saved(OUTPUT),))

    @property
    def combine(self) -> Tensors:
        """Outputs times weights, summed."""
        weights = Tensor(BEFORE, (self.heads, self.copies))
        return product(self._rows("undo"), weights, (self.tokens, self.inner))
