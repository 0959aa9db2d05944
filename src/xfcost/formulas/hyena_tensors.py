"""Tensors of the Hyena operator: its gates and long convolutions, and the network that computes its filters."""

from __future__ import annotations

from typing import Final, NamedTuple

from xfcost.formulas.tensors import Shape
from xfcost.ledger.number import Number
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Tensor, Tensors

# What a row that runs several times writes in other calls than its last.
_GATED: Final = "gated"
_SINES: Final = "sines"


class HyenaTensors(NamedTuple):
    """N tokens of width d, c long convolutions with filters of c·d channels, F hidden units in L hidden maps."""

    tokens: Number
    width: Number
    convolutions: int
    hidden: Number
    layers: int

    @property
    def _channels(self) -> Shape:
        """What all long convolutions read, or write."""
        return self.convolutions, self.tokens, self.width

    @property
    def _filters(self) -> Number:
        return self.convolutions * self.width

    def _layers(self, number: int) -> Shape:
        return number, self.tokens, self.hidden

    @property
    def sines(self) -> Tensors:
        """Every sine saves its input and that of its frequencies, outputs of the first and of the hidden maps."""
        first, others = (self.tokens, self.hidden), self._layers(self.layers)
        reads = (Tensor("filter_in", first), Tensor("mapped", others, once=True, held=True))
        made = (Tensor("mapped", others), Tensor("turned", self._layers(self.layers + 1)))
        return Tensors(reads, (Tensor(OUTPUT, first), Tensor(_SINES, others)), (Saved("filter_in"),), made)

    @property
    def hidden_maps(self) -> Tensors:
        """Each saves its input, the sine before it."""
        shape = self._layers(self.layers)
        return Tensors((Tensor(_SINES, shape),), (Tensor(OUTPUT, shape),), (Saved(_SINES),))

    @property
    def window(self) -> Tensors:
        """The window is fixed: it alone is saved."""
        shape = (self.tokens, self._filters)
        return Tensors((Tensor(BEFORE, shape),), (Tensor(OUTPUT, shape),), makes=(Tensor("window", shape),))

    @property
    def spectra(self) -> Tensors:
        """A transform saves the numbers filled up with zeros."""
        reads = (Tensor(BEFORE, (self.tokens, self._filters)),)
        writes = (Tensor(OUTPUT, (self.tokens + 1, self._filters), "complex"),)
        return Tensors(reads, writes, makes=(Tensor("filled up", (2 * self.tokens, self._filters), "statistic"),))

    @property
    def gate(self) -> Tensors:
        """Gates and the first value are parts of one tensor; the other values are what the convolutions leave."""
        gates = Tensor("short_conv", (self.convolutions + 2, self.tokens, self.width))
        values = Tensor("values", self._channels, held=True)
        writes = (Tensor(OUTPUT, (self.tokens, self.width)), Tensor(_GATED, self._channels))
        return Tensors((gates, values), writes, (Saved("short_conv"),), (Tensor("values", self._channels),))

    @property
    def long_convolution(self) -> Tensors:
        """The values filled up with zeros are saved, their spectra, and those of the filters."""
        values, filters = Tensor(_GATED, self._channels), Tensor("filter_fft", (self.tokens + 1, self._filters))
        spectra = Tensor("spectra", (self.convolutions, self.tokens + 1, self.width), "complex")
        filled = Tensor("filled up", (self.convolutions, 2 * self.tokens, self.width), "statistic")
        writes = (Tensor(OUTPUT, self._channels),)
        return Tensors((values, filters), writes, (Saved("filter_fft"),), (spectra, filled))

    @property
    def skip(self) -> Tensors:
        """The values are saved, for the weights' gradient."""
        both = (Tensor(BEFORE, self._channels), Tensor(_GATED, self._channels))
        return Tensors(both, (Tensor(OUTPUT, self._channels),), (Saved(_GATED),))
