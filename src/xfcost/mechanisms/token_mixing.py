"""Mixing with static weights over the tokens: MLP-Mixer, ResMLP, gMLP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    HiddenUnits,
    Letter,
    Mixer,
    NormKind,
    Number,
    Observed,
    Place,
    Ratio,
    Width,
)
from xfcost.program.functions import multiplied
from xfcost.program.leaves import Weight
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


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

    titles: ClassVar[Mapping[str, str]] = {"fc1": "Tokens to hidden units", "fc2": "Hidden units to tokens"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        hidden = t.act("act", over_tokens(t, "fc1", x, self.hidden, place, bias=self.bias), self.act)
        return over_tokens(t, "fc2", hidden, place.grid.total, place, bias=self.bias)


class TokenLinear(StaticGlobalMixer, frozen=True, kw_only=True, tag="token_linear"):
    """ResMLP's cross-patch sub-layer: one N×N map over the tokens, alike in all channels (Touvron et al. 2021, §2).

        linear   d·N² MACs, (N + β)·N parameters, β being 1 where there is a bias, else 0

    As attention it mixes N² pairs, with weights that are learned and fixed; another N needs new ones.
    """

    short_name = "Token-mixing linear"

    bias: bool = True
    """Whether the linear map has a bias."""

    titles: ClassVar[Mapping[str, str]] = {"linear": "Linear over tokens"}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return over_tokens(t, "linear", x, place.grid.total, place, bias=self.bias)


class Gmlp(StaticGlobalMixer, HiddenUnits, frozen=True, kw_only=True, tag="gmlp"):
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

    titles: ClassVar[Mapping[str, str]] = {
        "act": "MLP activation",
        "multiply": "Gate u ⊙ v",
        "spatial": "Linear over tokens",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        u, v = t.act("act", t.linear("fc1", x, self.inner(place.dim)), self.act).chunk(2, -1)
        # near 0 and 1 at first, so that a block starts as a plain feed-forward network (§2.1)
        v = t.norm("gate.norm", v, self.norm)
        v = over_tokens(t, "gate.spatial", v, place.grid.total, place, drawn=("near_zero", "ones"))
        return t.linear("fc2", t.leaf("gate.multiply", multiplied, u, v), place.dim)


def over_tokens(  # noqa: PLR0913 - a linear map, and how it is drawn
    t: Operations, name: str, x: Tensor, outputs: Number, place: Place, *, bias: bool = True,
    drawn: tuple[str, str] = ("linear", "zeros"),
) -> Tensor:  # fmt: skip
    """One linear map along the sequence, the same for all channels: (B, N, D) -> (B, N', D).

    d·N·N' MACs, N·N' (+ N') parameters: global mixing with static weights, whose shape fixes the number of tokens.
    """
    weights = [Weight((outputs, x.shape[1]), drawn[0]), *([Weight((outputs,), drawn[1], "bias")] if bias else [])]
    mixing: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": place.grid.total, "bound": True}
    return t.leaf(name, mapped, x, weights=weights, **mixing)


def mapped(t: Functions, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """W x + b: (B, N, D), (N', N) -> (B, N', D)."""
    return t.linear_map(x.transpose(1, 2), weight, bias).transpose(1, 2)
