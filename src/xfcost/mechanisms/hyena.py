"""Hyena: gated long convolutions, whose filters are as long as the input and computed by a small network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import log, pi
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.component import ComponentError, Letter, Number, Observed, Place, Side, Width, check_odd
from xfcost.formulas.mixers import AlwaysCausalMixer, global_mixing, static_weights
from xfcost.ledger.quantization import WeightMatrix
from xfcost.program.convolution import causal_depthwise
from xfcost.program.functions import multiplied
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations, itself
from xfcost.program.symbolic import Tensor


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

    titles: ClassVar[Mapping[str, str]] = {
        "in_proj": "Projections to gates and value",
        "positions": "Features of the positions",
        "filter_in": "Filter network, first map",
        "filter_sin": "Filter network, sin(ω∘x)",
        "filter_hidden": "Filter network, hidden maps",
        "filter_out": "Filter network, last map",
        "window": "Window of the filters",
        "filter_fft": "Spectra of the filters",
        "gate": "Gates",
        "long_conv": "Long convolutions by FFT",
        "skip": "Skip D∘v",
    }

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, d = place.grid.total, place.dim
        columns = causal_depthwise(t, t.linear("in_proj", x, (self.order + 1) * d), self.conv, "short_conv")
        last, *gates, v = columns.split((d,) * (int(self.order) + 1), dim=-1)
        spectra = self._filter(t, x, n, (self.order - 1) * d).split((d,) * (int(self.order) - 1), dim=-1)
        scales, mixing = (Weight((self.order - 1, d), "ones"),), static_weights(global_mixing(n))
        for number in t.repeats(self.order - 1):
            v = t.leaf("gate", multiplied, v, gates[-1 - number])
            y = t.leaf("long_conv", convolved, v, spectra[number], **mixing)
            v = t.leaf("skip", skipped, y, v, weights=scales, turn=number)
        return t.linear("out_proj", t.leaf("gate", multiplied, v, last), d)

    def check_decodes(self, place: Place) -> None:
        raise ComponentError(
            "kind",
            "--mode decode: 'hyena' has no state that a token could continue: its filters are as long as the text, and "
            "every token sums over all before it; --mode generate counts it without a cache",
        )

    def _filter(self, t: Operations, x: Tensor, tokens: Number, filters: Number) -> Tensor:
        """The spectra of the filters, computed from positions by a network: -> (N + 1, E)."""
        hidden, layers = self.filter_hidden, self.filter_layers
        features = Worked(features_of, {"tokens": tokens, "count": self.features})
        if self.positions == "learned":
            h = t.leaf("positions", itself, weights=(Weight((tokens, self.features), features),), bound=True)
        else:
            h = t.constant("features_NK", features, tokens, self.features, like=x)
        h = t.linear("filter_in", h, hidden)
        frequency = (Weight((hidden,), 14.0, "frequency"),)
        maps = (Weight((layers, hidden, hidden), "fan_in"), Weight((layers, hidden), "zeros", "bias"))
        matrices = (WeightMatrix(hidden, hidden),) * layers
        h = t.leaf("filter_sin", sine, h, weights=frequency)
        for number in range(layers):
            h = t.leaf("filter_hidden", hidden_map, h, weights=maps, turn=number, weight_matrices=matrices)
            h = t.leaf("filter_sin", sine, h, weights=frequency)
        h = t.linear("filter_out", h, filters, bias=False)
        time = Weight((tokens, 1), Worked(times, {"tokens": tokens}), "time_N1", learns=False)
        rate = Weight((filters,), Worked(rates, {"filters": filters}), "rate_E", learns=False)
        return t.leaf("filter_fft", spectrum_of, t.leaf("window", in_window, h, weights=(time, rate)))

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


def features_of(token: Any, column: Any, *, tokens: int, count: int) -> Any:
    """Time from 0 to 1, then cosines and -sines of (F - 1)/2 frequencies (Poli et al. 2023, the public code)."""
    bands = (count - 1) // 2
    frequency = 1e-4 + (bands - 1 - 1e-4) * ((column - 1) % bands) / max(bands - 1, 1)
    angle = 2 * pi * token / tokens * frequency
    waves = angle.cos() * (column <= bands) - angle.sin() * (column > bands)
    return times(token, column, tokens=tokens) * (column == 0) + waves * (column > 0)


def times(token: Any, _: Any, *, tokens: int) -> Any:
    """From 0 to 1."""
    return token / max(tokens - 1, 1)


def rates(number: Any, *, filters: int) -> Any:
    """The exponents of windows: at t = 1.5 the slowest has decayed to 0.01, at t = 0.3 the fastest."""
    slowest, fastest = log(1e-2) / 1.5, log(1e-2) / 0.3
    return slowest + (fastest - slowest) * number / max(filters - 1, 1)


def sine(t: Functions, x: Tensor, frequency: Tensor) -> Tensor:
    """sin(ω∘x), ω shared by all uses: (N, F) -> (N, F)."""
    return (frequency * x).sin()


def hidden_map(t: Functions, h: Tensor, weight: Tensor, bias: Tensor, *, turn: int) -> Tensor:
    """The hidden maps, applied in sequence: (N, F) -> (N, F)."""
    return t.linear_map(h, weight.select(0, turn), bias.select(0, turn))


def in_window(t: Functions, h: Tensor, time: Tensor, rate: Tensor) -> Tensor:
    """h∘exp(-t·δ): (N, E) -> (N, E)."""
    return h * (time * rate).exp()


def spectrum_of(t: Functions, h: Tensor) -> Tensor:
    """Fourier transforms, zero-padded to twice the length, so that the convolution does not wrap around."""
    return t.rfft(h, 2 * h.shape[0], 0)


def convolved(t: Functions, v: Tensor, spectrum: Tensor) -> Tensor:
    """h*v, channel by channel: (B, N, D), the spectrum of h (N + 1, D) -> (B, N, D)."""
    n = v.shape[1]
    return t.irfft(t.rfft(v, 2 * n, 1) * spectrum, 2 * n, 1, like=v).narrow(1, 0, n)


def skipped(t: Functions, y: Tensor, v: Tensor, weight: Tensor, *, turn: int = 0) -> Tensor:
    """y + D∘v, with one D per long convolution: (B, N, D) twice -> (B, N, D)."""
    return y + weight.select(0, turn) * v
