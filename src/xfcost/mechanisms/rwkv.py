"""RWKV-4: time mixing (a decaying weighted mean, walked along the tokens) and channel mixing, behind token shifts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import Mixer, Place, Width, alone
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import elementwise, linear, move, state, through_state
from xfcost.ledger.grid import Grid
from xfcost.ledger.number import Number
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.mamba import check_sequence


class Shifted(Mixer, frozen=True, kw_only=True):
    """What mixes every token with the one before it first: μ∘x_t + (1 - μ)∘x_{t-1}, a learned μ of d for each use."""

    @property
    def causality(self) -> Literal["exact"]:
        return "exact"

    def shift(self, place: Place, uses: int) -> Iterator[Operation]:
        """The token before each, N·d elements written; and the mixtures, uses·d parameters, (1 + 2·uses)·N·d FLOPs."""
        elements = place.grid.total * place.dim
        yield move("shift", "Token shift", elements)
        each = uses * (FLOPS_PER_ELEMENT["multiply"] + FLOPS_PER_ELEMENT["add"]) + FLOPS_PER_ELEMENT["add"]
        mix = Operation(path="mix", title="Mix with the token before", params=uses * place.dim, flops=elements * each)
        yield msgspec.structs.replace(mix, mixing="local", reads="2", reads_tokens=2)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """The rows of one token; the one before it is kept."""
        for row in through_state(self.operations(alone(place)), place.grid.total):
            yield state(row.title, place.dim, path=row.path) if row.path == "shift" else row

    def gated(self, place: Place) -> Operation:
        """σ(r)∘x."""
        work = FLOPS_PER_ELEMENT["sigmoid"] + FLOPS_PER_ELEMENT["multiply"]
        return Operation(path="gate", title="Receptance gate", flops=place.grid.total * place.dim * work)


class RwkvTime(Shifted, frozen=True, kw_only=True, tag="rwkv_time"):
    """Time mixing (Peng et al. 2023, equations 11 to 17): keys and values in a mean that decays with distance.

    N tokens of width d; no biases.

        shift, mix               the token before, three mixtures
        key, value, receptance   N·d² MACs each
        decay                    w = -exp(·), d numbers, once
        wkv                      Σ_j exp((t-1-j)w + k_j) v_j + exp(u + k_t) v_t over the sum of its weights, scaled by
                                 the largest of them: by convention 21 FLOPs and 2 comparisons per channel and
                                 step, which counters of products see nothing of, in N steps
        gate, output             N·d² MACs
    """

    def label(self) -> str:
        return "RWKV time mixing"

    def check(self, place: Place) -> None:
        check_sequence("rwkv_time", place)

    def steps(self, place: Place) -> Number:
        return place.grid.total

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        yield from self.shift(place, uses=3)
        for name in ("key", "value", "receptance"):
            yield linear(name, f"{name.capitalize()} projection", n, d, d, bias=False)
        work = FLOPS_PER_ELEMENT["exp"] + FLOPS_PER_ELEMENT["multiply"]
        yield Operation(path="decay", title="Decay w = -exp(·)", params=d, flops=d * work, once=True)
        yield Operation(
            path="wkv",
            title="WKV recurrence",
            params=d,
            flops=n * d * FLOPS_PER_ELEMENT["wkv"],
            comparisons=2 * n * d,
            moved=n * d,
            mixing="global",
            reads="N",
            reads_tokens=n,
            content_dependent=True,
        )
        yield self.gated(place)
        yield linear("output", "Output projection", n, d, d, bias=False)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """One step from numerator, denominator and largest exponent, a number each per channel."""
        for row in super().decoding(place):
            if row.path == "wkv":
                yield msgspec.structs.replace(row, moved=0)  # nothing to put side by side
                yield state("State for the next token", 3 * place.dim)
            else:
                yield row

    def notes(self, place: Place) -> Iterator[str]:
        yield (
            f"{place.grid.total:,} sequential steps per time mixing; all that was read is carried in a state of "
            f"{4 * place.dim:,} numbers, the last token among them, whatever N is"
        )


class RwkvChannel(Shifted, frozen=True, kw_only=True, tag="rwkv_channel"):
    """Channel mixing (Peng et al. 2023, equations 18 to 20): σ(R x')∘V·relu(K x'')².

    x' and x'' are mixed with the token before. N tokens of width d, H = `hidden` (4·d where it isn't given); no biases.

        key          N·d·H MACs
        value        N·H·d MACs
        receptance   N·d² MACs
    """

    hidden: Width | None = None

    def label(self) -> str:
        return "RWKV channel mixing"

    def check(self, place: Place) -> None:
        check_sequence("rwkv_channel", place)

    def inner(self, width: Number) -> Number:
        """H."""
        return 4 * width if self.hidden is None else self.hidden

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(max(token - 1, 0), token + 1)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return 2 * grid.total - lesser(grid.total, 1)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        hidden = self.inner(d)
        yield from self.shift(place, uses=2)
        yield linear("key", "Key projection", n, d, hidden, bias=False)
        yield elementwise("act", "ReLU", "relu", n * hidden)
        yield elementwise("square", "Square", "multiply", n * hidden)
        yield linear("value", "Value projection", n, hidden, d, bias=False)
        yield linear("receptance", "Receptance projection", n, d, d, bias=False)
        yield self.gated(place)
