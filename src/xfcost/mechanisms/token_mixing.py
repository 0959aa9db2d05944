"""Mixing with static weights over the tokens: MLP-Mixer, ResMLP, gMLP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    HiddenUnits,
    Letter,
    Mixer,
    NormKind,
    Observed,
    Operation,
    Place,
    Ratio,
    Width,
)
from xfcost.formulas.rows import elementwise, linear, linear_over_tokens, norm
from xfcost.formulas.tensors import saving_copies
from xfcost.ledger.tensors import BEFORE, merged_heads


class StaticGlobalMixer(Mixer, frozen=True):
    """A mixer whose outputs mix all tokens with static weights, which fix the number of tokens."""

    def notes(self, place: Place) -> Iterator[str]:
        yield f"the weights over tokens are for {place.grid.total} tokens: another N needs new weights"


class TokenMlp(StaticGlobalMixer, frozen=True, kw_only=True, tag="token_mlp"):
    """MLP-Mixer's token mixing: W₂ act(W₁x + b₁) + b₂ over the tokens, alike in all channels (Tolstikhin et al. 2021).

    N tokens of width d, k hidden units (the paper's D_S), chosen whatever N is: linear in N, and low-rank.

        fc1   d·N·k MACs, (N + β)·k parameters: a hidden unit reads all N tokens
        act   k·d elements
        fc2   d·k·N MACs, (k + β)·N parameters: a token reads the k hidden units, each out of all N tokens

    β is 1 where there are biases, else 0. Both tables grow with N, and another N needs new ones.
    """

    short_name = "Token-mixing MLP"

    hidden: Annotated[Width, Letter("k")]
    """Hidden units k, independent of N (the paper's D_S)."""
    act: ActKind = "gelu"
    """Activation function between the two linear maps."""
    bias: bool = True
    """Whether the two linear maps have biases."""

    def observed(self, place: Place) -> Observed:
        return Observed(left_out={"fc2": "it reads one hidden unit"} if self.hidden == 1 else {})

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, hidden = place.grid.total, place.dim, self.hidden
        yield linear_over_tokens("fc1", "Tokens to hidden units", d, n, hidden, bias=self.bias)
        yield elementwise("act", "Activation", self.act, hidden * d)
        yield linear_over_tokens("fc2", "Hidden units to tokens", d, hidden, n, tokens=n, bias=self.bias)


class TokenLinear(StaticGlobalMixer, frozen=True, kw_only=True, tag="token_linear"):
    """ResMLP's cross-patch sub-layer: one N×N map over the tokens, alike in all channels (Touvron et al. 2021, §2).

        linear   d·N² MACs, (N + β)·N parameters, β being 1 where there is a bias, else 0

    As attention it mixes N² pairs, with weights that are learned and fixed; another N needs new ones.
    """

    short_name = "Token-mixing linear"

    bias: bool = True
    """Whether the linear map has a bias."""

    def operations(self, place: Place) -> Iterator[Operation]:
        n = place.grid.total
        yield linear_over_tokens("linear", "Linear over tokens", place.dim, n, n, bias=self.bias)


class Gmlp(HiddenUnits, StaticGlobalMixer, frozen=True, kw_only=True, tag="gmlp"):
    """The gMLP block: U, act, spatial gating unit, V (Liu et al. 2021, Pay Attention to MLPs, §2).

    N tokens of width d, H hidden units. The unit splits them in two halves u, v and gives u ⊙ (W·norm(v) + b), W over
    the tokens, alike in all H/2 channels.

        fc1            N·d·H MACs, (d + 1)·H parameters
        act            N·H elements
        gate_norm      N·H/2 elements, H parameters, where there is a norm
        gate_spatial   (H/2)·N² MACs, N² + N parameters, which another N needs anew
        gate_multiply  N·H/2 multiplications
        fc2            N·(H/2)·d MACs, (H/2 + 1)·d parameters

    Channel and token mixing share one residual: a gMLP block has no `mlp`.
    """

    short_name = "Spatial gating"

    ratio: Ratio = 6.0
    """Hidden width over width, H/d, if `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H, even; `ratio`·d by default."""
    act: ActKind = "gelu"
    """Activation function after the first linear map."""
    norm: NormKind = "layer_norm"
    """Norm of the half that becomes the gate."""

    def check(self, place: Place) -> None:
        super().check(place)
        hidden = self.inner(place.dim)
        if hidden % 2:
            field = "ratio" if self.hidden is None else "hidden"
            raise ComponentError(
                field, f"{hidden} hidden units are odd, and one half gates the other; give an even number"
            )

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
