"""Gated feed-forward networks (GLU variants)."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import ActKind, ComponentError, Number, Operation, Place, Width
from xfcost.formulas.layer import PerToken
from xfcost.formulas.rows import elementwise, linear, on_raw_input


class GatedMlp(PerToken, frozen=True, kw_only=True):
    """(act(xW) ⊗ xV)W₂ (Shazeer 2020, "GLU Variants Improve Transformer", equation 6).

    gate   N·d·H MACs, d·H parameters
    act    N·H elements
    up     N·d·H MACs
    glu    N·H multiplications
    down   N·H·d MACs

    Three matrices in place of two. The default H = 8d/3 has the parameters and MACs of the plain network with H = 4d;
    models round it up (LLaMA to a multiple of 256).
    """

    hidden: Width | None = None
    """Hidden width H; 8d/3 by default."""
    bias: bool = False
    """Whether the three linear maps have biases."""

    @property
    def activation(self) -> ActKind:
        """Activation function of the gate."""
        raise NotImplementedError

    def check(self, place: Place) -> None:
        if self.hidden is None and 8 * place.dim % 3:
            near = 8 * place.dim // 3
            raise ComponentError(
                "hidden", f"8·{place.dim}/3 is not a whole width; give `hidden`, such as {near} or {near + 1}"
            )

    def inner(self, width: Number) -> Number:
        """H, the hidden width."""
        return 8 * width // 3 if self.hidden is None else self.hidden

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        hidden = self.inner(d)
        yield on_raw_input(linear("gate", "Gate projection", n, d, hidden, bias=self.bias))
        yield elementwise("act", "Gate activation", self.activation, n * hidden)
        yield on_raw_input(linear("up", "Up-projection", n, d, hidden, bias=self.bias))
        yield elementwise("glu", "Gate times up-projection", "multiply", n * hidden, of=("act", "up"))
        yield linear("down", "Down-projection", n, hidden, d, bias=self.bias)
