"""RWKV-4's channel mixing: a gated feed-forward network of a token and the previous one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xfcost.formulas.arithmetic import lesser
from xfcost.formulas.component import Grid, Number, Operation, Place, Width
from xfcost.formulas.mixers import TokenShiftMixer, mixture
from xfcost.formulas.rows import elementwise, linear
from xfcost.formulas.tensors import reading
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Tensor, Tensors


class RwkvChannel(TokenShiftMixer, frozen=True, kw_only=True, tag="rwkv_channel"):
    """Channel mixing (Peng et al. 2023, equations 18 to 20): σ(R x')∘V·relu(K x'')².

    x' and x'' are mixed with the token before. N tokens of width d, H = `hidden` (4·d where it isn't given); no biases.

        key          N·d·H MACs
        value        N·H·d MACs
        receptance   N·d² MACs
    """

    short_name = "RWKV channel mixing"

    hidden: Width | None = None
    """Hidden width H; 4d by default."""

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
        yield reading(linear("key", "Key projection", n, d, hidden, bias=False), mixture(0))
        yield elementwise("act", "ReLU", "relu", n * hidden)
        read, written = Tensor(BEFORE, (n, hidden)), Tensor(OUTPUT, (n, hidden))
        squared = Tensors((read,), (written,), (Saved(BEFORE),))
        yield elementwise("square", "Square", "multiply", n * hidden, tensors=squared)
        yield linear("value", "Value projection", n, hidden, d, bias=False)
        yield reading(linear("receptance", "Receptance projection", n, d, d, bias=False), mixture(1))
        yield self.gated(place, "value")
