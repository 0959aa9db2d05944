"""Hyena: gated long convolutions, whose filters are as long as the input and computed by a small network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.component import ComponentError, Letter, Number, Observed, Operation, Place, Side, Width, check_odd
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT as COSTS
from xfcost.formulas.mixers import AlwaysCausalMixer
from xfcost.formulas.rows import (
    depthwise_convolution,
    elementwise,
    global_mixing,
    linear,
    static_weights,
    with_gradient_operands,
)
from xfcost.formulas.tensors import channels_first, mapped, reading, weights
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Tensor, Tensors


class Hyena(AlwaysCausalMixer, frozen=True, kw_only=True, tag="hyena"):
    """The Hyena operator (Poli et al. 2023, §3.1 to §3.3), of the public code's order o, causal by its nature.

    N tokens of width d are projected to o gates x₀ … and a value v; then o - 1 times v ← h∘*(v∘x) + D∘(v∘x), at last
    v∘x₀. The filters h of N numbers for each of (o - 1)·d channels come from a network of the position.

        in_proj        N·d·(o + 1)·d MACs, (d + 1)·(o + 1)·d parameters
        short_conv     (N + W - 1)·W·(o + 1)·d MACs, (W + 1)·(o + 1)·d parameters: causal, depthwise; what sticks out is
                       computed and dropped
        positions      N·K parameters where they are learned: K features of every position, time, cosines and sines
        filter_in      N·K·F MACs, (K + 1)·F parameters, once for a batch, as all of the filters
        filter_sin     F parameters: sines between the maps
        filter_hidden  L·N·F² MACs, L·(F + 1)·F parameters
        filter_out     N·F·(o - 1)·d MACs, F·(o - 1)·d parameters
        window         by exp(-t·δ), a decay of its own for every channel
        filter_fft     5·N·⌈log₂ 2N⌉·(o - 1)·d FLOPs: transforms of h, filled up with zeros to 2N numbers
        long_conv      as many of v and back, and the products of the spectra: (o - 1)·d·(10·N·⌈log₂ 2N⌉ + 6·(N + 1))
                       FLOPs by convention, no MACs: counters of products see nothing of it
        skip           (o - 1)·d parameters
        out_proj       N·d² MACs, (d + 1)·d parameters

    W `conv`, K `features`, F `filter_hidden`, L `filter_layers`. Transforms round, so that later tokens stir the last
    bits of earlier ones.
    """

    order: Annotated[int, msgspec.Meta(ge=2, le=64), Letter("o")] = 2
    """Order o of the operator: the number of gates, with o - 1 long convolutions."""
    conv: Annotated[Side, Letter("W")] = 3
    """Kernel size W of the short convolutions, in tokens."""
    features: Annotated[int, msgspec.Meta(ge=3, le=2**16), Letter(None)] = 33
    """Features K of a position, odd: the time, and as many cosines as sines."""
    filter_hidden: Annotated[Width, Letter("k")] = 64
    """Hidden width F of the network that computes the filters."""
    filter_layers: Annotated[Side, Letter(None)] = 2
    """Hidden linear maps L between the first and the last of that network."""
    positions: Literal["learned", "fixed"] = "learned"
    """Whether the positions' features are learned or fixed."""

    def label(self) -> str:
        return f"Hyena (order {self.order})"

    def check(self, place: Place) -> None:
        super().check(place)
        check_odd("features", self.features, "beside the time stand as many cosines as sines")

    def observed(self, place: Place) -> Observed:
        return Observed(rounding=1e-13)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        wide, filters = (self.order + 1) * d, (self.order - 1) * d
        yield linear("in_proj", "Projections to gates and value", n, d, wide)
        channels = (self.order - 1, n, d)  # what all long convolutions read, or write
        outputs = n + self.conv - 1
        row = depthwise_convolution("short_conv", "Causal depthwise convolution", outputs, (self.conv,), wide)
        yield msgspec.structs.replace(row, tensors=mapped((n, wide), (outputs, wide)))
        for row in self._filter(n, filters):
            yield msgspec.structs.replace(row, once=True)
        gates, values = Tensor("short_conv", (self.order + 1, n, d)), Tensor("values", channels, held=True)
        writes = (Tensor(OUTPUT, (n, d)), Tensor(_GATED, channels))
        tensors = Tensors((gates, values), writes, (Saved("short_conv"),), (Tensor("values", channels),))
        yield elementwise("gate", "Gates", "multiply", n * self.order * d, tensors=tensors)
        # The values filled up with zeros are saved, their spectra, and those of the filters
        transforms = 2 * COSTS["fft"] * n * ceil_log2(2 * n)
        reads = Tensor(_GATED, channels), Tensor("filter_fft", (n + 1, filters))
        spectra = Tensor("spectra", (self.order - 1, n + 1, d), "complex")
        filled = Tensor("filled up", (self.order - 1, 2 * n, d), "statistic")
        yield Operation(
            path="long_conv",
            title="Long convolutions by FFT",
            flops=filters * (transforms + (n + 1) * COSTS["complex_multiply"]),
            tensors=Tensors(reads, (Tensor(OUTPUT, channels),), (Saved("filter_fft"),), (spectra, filled)),
            **static_weights(global_mixing(n)),
        )
        # The values are saved, for the weights' gradient
        both = (Tensor(BEFORE, channels), Tensor(_GATED, channels))
        tensors = Tensors(both, (Tensor(OUTPUT, channels),), (Saved(_GATED),))
        skip = {"params": filters, "tensors": tensors}
        yield elementwise("skip", "Skip D∘v", "multiply + add", n * filters, **skip)
        yield channels_first(reading(linear("out_proj", "Output projection", n, d, d), "gate"), "gate", n, d)

    def step(self, place: Place) -> Iterator[Operation]:
        raise ComponentError(
            "kind",
            "--mode decode: 'hyena' has no state that a token could continue: its filters are as long as the text, and "
            "every token sums over all before it; --mode generate counts it without a cache",
        )

    def _filter(self, tokens: Number, filters: Number) -> Iterator[Operation]:
        """The network that computes the filters, from weights only."""
        hidden, layers = self.filter_hidden, self.filter_layers
        if self.positions == "learned":
            table = tokens * self.features
            held = weights((tokens, self.features))
            title = "Features of the positions"
            yield Operation(path="positions", title=title, params=table, bound=True, tensors=held)
        row = linear("filter_in", "Filter network, first map", tokens, self.features, hidden)
        features = (Tensor("positions", (tokens, self.features), once=True, held=True),)
        row = reading(row, "positions", reads=features)
        yield with_gradient_operands(row, 2 if self.positions == "learned" else 1)
        sines, title = (layers + 1) * tokens * hidden, "Filter network, sin(ω∘x)"
        # Every sine saves its input and that of its frequencies, outputs of the first and of the hidden maps
        first, others = (tokens, hidden), (layers, tokens, hidden)
        reads = (Tensor("filter_in", first), Tensor("mapped", others, once=True, held=True))
        made = (Tensor("mapped", others), Tensor("turned", (layers + 1, tokens, hidden)))
        tensors = Tensors(reads, (Tensor(OUTPUT, first), Tensor(_SINES, others)), (Saved("filter_in"),), made)
        yield elementwise("filter_sin", title, "multiply + exp", sines, params=hidden, tensors=tensors)
        row = linear("filter_hidden", "Filter network, hidden maps", layers * tokens, hidden, hidden)
        # Each saves its input, the sine before it
        tensors = Tensors((Tensor(_SINES, others),), (Tensor(OUTPUT, others),), (Saved(_SINES),))
        yield msgspec.structs.replace(
            row, params=layers * row.params, weight_matrices=layers * row.weight_matrices, tensors=tensors
        )
        last = linear("filter_out", "Filter network, last map", tokens, hidden, filters, bias=False)
        yield reading(last, "filter_sin")
        # The window is fixed: it alone is saved
        shape = (tokens, filters)
        tensors = Tensors((Tensor(BEFORE, shape),), (Tensor(OUTPUT, shape),), makes=(Tensor("window", shape),))
        yield elementwise(
            "window", "Window of the filters", "multiply + multiply + exp", tokens * filters, tensors=tensors
        )
        transforms = filters * COSTS["fft"] * tokens * ceil_log2(2 * tokens)
        # A transform saves the numbers filled up with zeros
        spectra = Tensor(OUTPUT, (tokens + 1, filters), "complex")
        filled = Tensor("filled up", (2 * tokens, filters), "statistic")
        tensors = Tensors((Tensor(BEFORE, shape),), (spectra,), makes=(filled,))
        yield Operation(path="filter_fft", title="Spectra of the filters", flops=transforms, tensors=tensors)

    def notes(self, place: Place) -> Iterator[str]:
        n = place.grid.total
        yield (
            f"{self.order - 1} long convolution(s) by transforms of 2·{n:,} numbers: in the FLOPs by convention, none "
            "of it in the MACs"
        )
        if self.positions == "learned":
            yield f"features of {n:,} positions are learned in every layer: another N needs other rows"
        yield (
            "token by token there is no state of constant size: the filters read all tokens, of which "
            f"{(self.order - 1) * place.dim:,} numbers each must be kept"
        )


# What a row that runs several times writes in other calls than its last.
_GATED: Final = "gated"
_SINES: Final = "sines"
