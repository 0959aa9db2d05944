"""Tensors of Mamba-2's chunks: the products inside them, and the states from chunk to chunk."""

from __future__ import annotations

from typing import Final, NamedTuple

from xfcost.formulas.tensors import Shape, product
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Merged, Saved, Tensor, Tensors, Widened

_PADDED: Final = "padded inputs"


class Mamba2Sizes(NamedTuple):
    """N `tokens`, `padded` to C `chunks` of Q tokens; h `heads` of E = `inner` channels, S numbers of `state` each.

    G `groups` of heads share B and C. In memory all tokens of a channel lie side by side, unless padding copied them.
    """

    tokens: Number
    padded: Number
    chunks: Number
    chunk: Number
    heads: Number
    inner: Number
    state: Number
    groups: int

    @property
    def _pads(self) -> bool:
        return bool(self.padded != self.tokens)

    @property
    def _channels(self) -> Number:
        """Channels of u, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def _step(self) -> Tensor:
        return Tensor("pad" if self._pads else "step", (self.padded, self.heads))

    def _part(self, width: Number) -> Tensor:
        """u, or B or C repeated for every head."""
        return Tensor(_PADDED if self._pads else "act", (self.padded, width))

    @property
    def _mixed(self) -> Shape:
        """B or C of every head."""
        return self.padded, self.heads * self.state

    @property
    def _entries(self) -> Shape:
        return self.chunks, self.heads, self.chunk, self.chunk

    @property
    def _sums(self) -> Tensor:
        return Tensor("sums", (self.padded, self.heads))

    @property
    def _states(self) -> Shape:
        return self.chunks, self.state, self.inner

    def _copied(self, shape: Shape) -> Merged | Exchanged:
        """A product's copy of an operand whose chunks, or heads, are not in its order."""
        if self._pads:
            return Merged(shape, self.heads, self.chunk, self.chunks)
        return Exchanged(shape, (self.chunks, self.heads))

    @property
    def biased(self) -> Tensors:
        """Δ and its bias: the sum is saved."""
        shape = (self.tokens, self.heads)
        return Tensors((Tensor("in_proj", shape),), (Tensor(OUTPUT, shape),), makes=(Tensor("biased", shape),))

    @property
    def pad(self) -> Tensors:
        """Whole chunks pass as they are."""
        sizes = {"step": self.heads, "act": self._channels}
        reads = tuple(Tensor(name, (self.tokens, width)) for name, width in sizes.items())
        writes = (Tensor(OUTPUT, (self.padded, self.heads)), Tensor(_PADDED, (self.padded, self._channels)))
        return Tensors(reads, writes if self._pads else (), beside=True)

    @property
    def inputs(self) -> Tensors:
        """Δ∘u."""
        u = self._part(self.inner)
        return product(u, self._step, u.shape)

    @property
    def rates(self) -> Tensors:
        """ΔA."""
        return product(self._step, Tensor("decay", (self.heads,), once=True), self._step.shape)

    @property
    def sums(self) -> Tensors:
        """A running sum saves nothing."""
        return Tensors((Tensor("rates", self._sums.shape),), (Tensor(OUTPUT, self._sums.shape),))

    @property
    def decays(self) -> Tensors:
        """An exponential saves its output, and a mask itself."""
        mask = Tensor("mask", (self.chunk, self.chunk), "bool", once=True)
        return Tensors((self._sums,), (Tensor(OUTPUT, self._entries),), (Saved(OUTPUT),), (mask,))

    @property
    def scores(self) -> Tensors:
        """CBᵀ; of several groups, both are repeated for every head before, which copies them."""
        mixed = self._part(self._mixed[1])
        writes = (Tensor(OUTPUT, self._entries),)
        if self.groups > 1:
            return Tensors((mixed, mixed), writes, makes=(Tensor("C", self._mixed), Tensor("B", self._mixed)))
        return Tensors((mixed, mixed), writes, 2 * (self._repeated,))

    @property
    def _repeated(self) -> Saved:
        """A product copies B or C of one group for all heads, unless there is one chunk of one sample."""
        copied = Merged(self._mixed, self.heads, self.chunk, self.chunks)
        return Saved(self._part(self._mixed[1]).name, copied=copied)

    @property
    def weigh(self) -> Tensors:
        """Products by decays."""
        return product(Tensor("local_scores", self._entries), Tensor("local_decays", self._entries), self._entries)

    @property
    def weighted_sum(self) -> Tensors:
        """The weights and Δ∘u."""
        shape = (self.padded, self.inner)
        return product(Tensor(BEFORE, self._entries), Tensor("inputs", shape), shape, None, self._copied(shape))

    @property
    def fade(self) -> Tensors:
        """B by an exponential, which is saved as well as B."""
        b = self._part(self._mixed[1])
        saves = (Saved(b.name),) if self.groups == 1 else ()  # of several groups it is the copy that the scores save
        made = Tensor("exponential", self._sums.shape)
        return Tensors((b, self._sums), (Tensor(OUTPUT, self._mixed),), saves, (made,))

    @property
    def add_state(self) -> Tensors:
        """BᵀΔu."""
        mixed, shape = self._mixed, (self.padded, self.inner)
        copies = (None if self.groups > 1 else self._copied(mixed), self._copied(shape))
        return product(Tensor(BEFORE, mixed), Tensor("inputs", shape), self._states, *copies)

    @property
    def spans(self) -> Tensors:
        """Decays from chunk to chunk: an exponential and its mask."""
        bounds = self.chunks + 1
        mask = Tensor("mask", (bounds, bounds), "bool", once=True)
        writes = (Tensor(OUTPUT, (self.heads, bounds, bounds)),)
        return Tensors((Tensor("sums", (self.chunks, self.heads)),), writes, (Saved(OUTPUT),), (mask,))

    @property
    def carry(self) -> Tensors:
        """The spans, and the states behind one of zeros."""
        bounds = self.chunks + 1
        reads = (Tensor("spans", (self.heads, bounds, bounds)), Tensor("state", self._states))
        behind = Tensor("behind zeros", (bounds, self.state, self.inner))
        return Tensors(reads, (Tensor(OUTPUT, self._states),), (Saved("spans"),), (behind,))

    @property
    def read(self) -> Tensors:
        """C and the states before the chunks, which are copied, without the last one, where there are several."""
        saved = 2 if self.chunks == 1 else self.chunks
        states = Tensor("before", (saved, self.state, self.inner))
        saves = (self._repeated,) if self.groups == 1 else ()  # of several groups the scores have saved the copy
        reads = (self._part(self._mixed[1]), Tensor(BEFORE, self._states))
        return Tensors(reads, (Tensor(OUTPUT, (self.padded, self.inner)),), saves, (states,))

    @property
    def reach(self) -> Tensors:
        """What was read by an exponential: both are saved."""
        shape = (self.padded, self.inner)
        made = Tensor("exponential", self._sums.shape)
        return Tensors((Tensor(BEFORE, shape), self._sums), (Tensor(OUTPUT, shape),), (Saved(BEFORE),), (made,))

    @property
    def norm(self) -> Tensors:
        """x, 1/rms of every group, and x/rms: in float32 or wider, unless the gain comes after several groups."""
        shape = (self.tokens, self.inner)
        statistics = Tensor("statistics", (self.tokens, self.groups), "statistic")
        normed = Tensor("normed", shape, "statistic" if self.groups == 1 else "model")
        saves = (Saved(BEFORE, copied=Widened(shape)),)
        return Tensors((Tensor(BEFORE, shape),), (Tensor(OUTPUT, shape),), saves, (statistics, normed))
