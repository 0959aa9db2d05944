"""gMLP: a feed-forward network whose hidden half is gated by a linear map over the tokens."""

from __future__ import annotations

from collections.abc import Iterator

from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    NormKind,
    Number,
    Operation,
    Place,
    Ratio,
    Width,
    check_hidden,
    hidden_width,
)
from xfcost.formulas.mixers import StaticGlobalMixer
from xfcost.formulas.rows import elementwise, linear, linear_over_tokens, norm
from xfcost.formulas.tensors import saving_copies
from xfcost.ledger.tensors import BEFORE, merged_heads


class Gmlp(StaticGlobalMixer, frozen=True, kw_only=True, tag="gmlp"):
    """The gMLP block: U, act, spatial gating unit, V (Liu et al. 2021, Pay Attention to MLPs, §2).

    N tokens of width d, H hidden units. The unit splits them in two halves u, v and gives u ⊙ (W·norm(v) + b), W over
    the tokens, alike in all H/2 channels.

        fc1            N·d·H MACs
        act            N·H elements
        gate_norm      N·H/2 elements
        gate_spatial   (H/2)·N² MACs, N² + N parameters, which another N needs anew
        gate_multiply  N·H/2 elements
        fc2            N·(H/2)·d MACs

    Channel and token mixing stand in one residual: a gMLP block has no `mlp` beside it.
    """

    short_name = "Spatial gating"

    ratio: Ratio = 6.0
    """Hidden width over width, H/d, where `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H, even; `ratio`·d by default."""
    act: ActKind = "gelu"
    """Activation function after the first linear map."""
    norm: NormKind = "layer_norm"
    """Norm of the half that becomes the gate."""

    def check(self, place: Place) -> None:
        check_hidden(self.hidden, self.ratio, place.dim)
        hidden = self.inner(place.dim)
        if hidden % 2:
            field = "ratio" if self.hidden is None else "hidden"
            raise ComponentError(
                field, f"{hidden} hidden units are odd, and one half gates the other; give an even number"
            )

    def inner(self, width: Number) -> Number:
        """H."""
        return hidden_width(self.hidden, self.ratio, width)

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        hidden = self.inner(d)
        half = hidden // 2
        yield linear("fc1", "MLP up-projection", n, d, hidden)
        yield elementwise("act", "MLP activation", self.act, n * hidden)
        yield from norm(self.norm, "gate_norm", n, half)
        spatial = linear_over_tokens("gate_spatial", "Linear over tokens", half, n, n)
        yield saving_copies(spatial, merged_heads((n, half), half, n))
        yield elementwise("gate_multiply", "Gate u ⊙ v", "multiply", n * half, of=("act", BEFORE))
        yield linear("fc2", "MLP down-projection", n, half, d)
