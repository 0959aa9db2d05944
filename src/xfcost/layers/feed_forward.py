"""Norms, linear maps, and feed-forward networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    PerToken,
    Place,
    Ratio,
    Width,
    check_class_token,
)
from xfcost.program.functions import joined, multiplied
from xfcost.program.operations import Operations
from xfcost.program.symbolic import Shape, Tensor


class Norm(Embed, frozen=True, kw_only=True, tag="norm"):
    """A norm outside blocks: after the embeddings (BERT's public implementation), before a convolution (ConvNeXt's).

    norm   N·d elements, 2d parameters (an RMS norm d parameters)
    """

    token_wise: ClassVar[bool] = True

    norm: NormKind = "layer_norm"
    """Which norm."""

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return t.norm("norm", x, self.norm)


class NormSubLayer(PerToken, frozen=True, kw_only=True, tag="norm"):
    """A norm on the stream itself, in a block: the last step of a Conformer's (Gulati et al. 2020, equation 1).

    norm   N·d elements, 2d parameters (an RMS norm d parameters)
    """

    only_norm: ClassVar[bool] = True

    residual: Literal["none"] = "none"
    """Only `none`: the norm is on the stream itself."""
    norm: NormKind = "layer_norm"
    """Which norm."""

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        return t.norm("norm", x, self.norm)


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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        x = t.linear("linear", x, self.out(place)[1], bias=self.bias)
        return t.act("act", t.norm("norm", x, self.norm), self.act)


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

    feed_forward: ClassVar[bool] = True

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

    titles: ClassVar[Mapping[str, str]] = {"act": "MLP activation", "join": "Join the chunks"}

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

    def entering(self, place: Place) -> Shape:
        return place.grid.special if self.special_tokens_only else place.grid.total, place.dim

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        if self.chunks == 1:
            return self._network(t, x, place)
        return t.leaf("join", joined, *(self._network(t, part, place) for part in x.chunk(self.chunks, 1)))

    def _network(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        hidden = t.act("act", t.linear("fc1", x, self.inner(place.dim), bias=self.bias), self.act)
        return t.linear("fc2", hidden, self.width(place), bias=self.bias)

    def skip(self, t: Operations, given: Tensor, x: Tensor, place: Place) -> Tensor:
        width = self.width(place)
        return x if width == place.dim else t.linear("residual_projection", given, width)

    def notes(self, place: Place) -> Iterator[str]:
        n, hidden = self.entering(place)[0], self.inner(place.dim)
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

    feed_forward: ClassVar[bool] = True

    hidden: Width | None = None
    """Hidden width H; 8d/3 by default."""
    bias: bool = False
    """Whether the three linear maps have biases."""

    titles: ClassVar[Mapping[str, str]] = {"act": "Gate activation", "glu": "Gate times up-projection"}

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        hidden = self.inner(place.dim)
        gate = t.act("act", t.linear("gate", x, hidden, bias=self.bias, title="Gate projection"), self.activation)
        gated = t.leaf("glu", multiplied, gate, t.linear("up", x, hidden, bias=self.bias))
        return t.linear("down", gated, place.dim, bias=self.bias)


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
