"""Norms, linear maps, and feed-forward networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Embed,
    Grid,
    HiddenUnits,
    Letter,
    NormKind,
    Number,
    Operation,
    PerToken,
    Place,
    Ratio,
    Width,
    check_class_token,
)
from xfcost.formulas.rows import elementwise, linear, move, norm, on_raw_input
from xfcost.formulas.tensors import copied


class Norm(Embed, frozen=True, kw_only=True, tag="norm"):
    """A norm outside blocks: after the embeddings (BERT's public implementation), before a convolution (ConvNeXt's).

    norm   N·d elements, 2d parameters (an RMS norm d parameters)
    """

    token_wise: ClassVar[bool] = True

    norm: NormKind = "layer_norm"
    """Which norm."""

    def operations(self, place: Place) -> Iterator[Operation]:
        yield from norm(self.norm, "norm", place.grid.total, place.dim)


class NormSubLayer(PerToken, frozen=True, kw_only=True, tag="norm"):
    """A norm on the stream itself, in a block: the last step of a Conformer's (Gulati et al. 2020, equation 1).

    norm   N·d elements, 2d parameters (an RMS norm d parameters)
    """

    only_norm: ClassVar[bool] = True

    residual: Literal["none"] = "none"
    """Only `none`: the norm is on the stream itself."""
    norm: NormKind = "layer_norm"
    """Which norm."""

    def operations(self, place: Place) -> Iterator[Operation]:
        yield from norm(self.norm, "norm", place.grid.total, place.dim)


class Dense(PerToken, frozen=True, kw_only=True, tag="dense"):
    """act(norm(xW + b)), d to d: Set Transformer's rFF as its authors' code has it (Lee et al. 2019, equation 6).

        linear   N·d·d' MACs, (d + β)·d' parameters, β being 1 where there is a bias, else 0
        norm     N·d' elements, 2d' parameters (an RMS norm d' parameters), where there is a norm
        act      N·d' elements, where there is an activation

    With `residual: none` it brings the width to the stage's, d to d': the 1×1 convolution behind a convolutional
    network's last block (MobileViT's, with a batch norm and no bias).
    """

    norm: NormKind = "none"
    """Norm after the linear map."""
    act: ActKind | Literal["none"] = "relu"
    """Activation function after the norm."""
    bias: bool = True
    """Whether the linear map has a bias."""

    @property
    def widens(self) -> bool:
        return self.residual == "none"

    def check(self, place: Place) -> None:
        if self.norm == "group_norm":
            raise ComponentError("norm", "a group norm mixes all tokens, and 'dense' none; use another norm")

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, place.out_dim if self.widens else place.dim

    def operations(self, place: Place) -> Iterator[Operation]:
        n, width = place.grid.total, self.out(place)[1]
        yield linear("linear", "Linear map", n, place.dim, width, bias=self.bias)
        yield from norm(self.norm, "norm", n, width)
        if self.act != "none":
            yield elementwise("act", "Activation", self.act, n * width)


class Mlp(HiddenUnits, PerToken, frozen=True, kw_only=True, tag="mlp"):
    """Position-wise feed-forward network act(xW₁ + b₁)W₂ + b₂ (Vaswani et al. 2017, §3.3).

    fc1   N·d·H MACs, (d + β)·H parameters
    act   N·H elements
    fc2   N·H·d' MACs, (H + β)·d' parameters

    β is 1 where there are biases, else 0; d' is d unless `out_width` says otherwise.

    In k `chunks` of the sequence, one after the other (Kitaev et al. 2020, §3), ⌈N/k⌉·H hidden elements are alive at a
    time instead of N·H, for the same work; the answers are joined. As `torch.chunk` cuts, k need not divide N.

    With `tokens: class_token` it is the special tokens' alone: N is then 1 where a class token is the only one (CaiT,
    Touvron et al. 2021, §3), and the grid's tokens pass by.
    """

    ratio: Ratio = 4.0
    """Hidden width over width, H/d, if `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    act: ActKind = "gelu"
    """Activation function between the two linear maps."""
    bias: bool = True
    """Whether the two linear maps have biases."""
    chunks: Annotated[int, msgspec.Meta(ge=1, le=2**12), Letter(None)] = 1
    """Number k of parts of the sequence that run one after the other, to keep fewer hidden elements in memory."""
    tokens: Literal["all", "class_token"] = "all"
    """Whether all tokens pass through, or only the class token (CaiT)."""
    out_width: Width | None = None
    """Output width; d by default. The residual then projects x to it."""

    @property
    def special_tokens_only(self) -> bool:
        return self.tokens == "class_token"

    def check(self, place: Place) -> None:
        super().check(place)
        if self.special_tokens_only:
            check_class_token("tokens", place)
        if self.special_tokens_only and self.width(place) != place.dim:
            raise ComponentError("out_width", "the grid's tokens pass by and stay as wide as they are; leave it out")

    @property
    def widens(self) -> bool:
        return self.out_width is not None

    def width(self, place: Place) -> Number:
        """The width that comes out."""
        return place.dim if self.out_width is None else self.out_width

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, self.width(place)

    def _tokens(self, place: Place) -> Number:
        return place.grid.special if self.special_tokens_only else place.grid.total

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, width = self._tokens(place), place.dim, self.width(place)
        hidden = self.inner(d)
        yield on_raw_input(linear("fc1", "MLP up-projection", n, d, hidden, bias=self.bias))
        yield elementwise("act", "MLP activation", self.act, n * hidden)
        yield linear("fc2", "MLP down-projection", n, hidden, width, bias=self.bias)
        if self.chunks > 1:
            yield move("join", "Join the chunks", n * width, tensors=copied((n, width), (n, width)))

    def shortcut(self, place: Place) -> Iterator[Operation]:
        n, d, width = place.grid.total, place.dim, self.width(place)
        if width != d:
            yield on_raw_input(linear("residual_projection", "Projection of the residual stream", n, d, width))

    def notes(self, place: Place) -> Iterator[str]:
        n, hidden = self._tokens(place), self.inner(place.dim)
        if self.chunks > 1 and n > 1:
            size = ceil_div(n, self.chunks)
            yield (
                f"feed-forward in {ceil_div(n, size)} chunks of up to {size:,} tokens: {size:,}·{hidden:,} = "
                f"{size * hidden:,} hidden elements per sample are alive at a time instead of {n * hidden:,}, for the "
                "same MACs (training keeps all of them, unless they are worked out again, as a reversible stage does)"
            )


class GatedMlp(PerToken, frozen=True, kw_only=True):
    """(act(xW) ⊗ xV)W₂ (Shazeer 2020, "GLU Variants Improve Transformer", equation 6).

    gate   N·d·H MACs, (d + β)·H parameters
    act    N·H elements of SiLU or GELU
    up     N·d·H MACs, (d + β)·H parameters
    glu    N·H multiplications
    down   N·H·d MACs, (H + β)·d parameters

    β is 1 where there are biases, else 0. Three matrices instead of two. The default H = 8d/3 has the parameters and
    MACs of the plain network with H = 4d; models round it up (LLaMA to a multiple of 256).
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


class Geglu(GatedMlp, frozen=True, kw_only=True, tag="geglu"):
    """GEGLU, gated by GELU: (gelu(xW) ⊗ xV)W₂; T5 v1.1's, by GELU's tanh formula."""

    act: Literal["gelu", "gelu_tanh"] = "gelu"
    """`gelu` is the exact GELU, `gelu_tanh` its tanh approximation."""

    @property
    def activation(self) -> ActKind:
        return self.act


class Swiglu(GatedMlp, frozen=True, kw_only=True, tag="swiglu"):
    """SwiGLU, gated by SiLU: (silu(xW) ⊗ xV)W₂; LLaMA's and PaLM's."""

    @property
    def activation(self) -> ActKind:
        return "silu"
