"""The feed-forward network of a block: two linear maps and an activation, token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Grid,
    Letter,
    Number,
    Operation,
    Place,
    Width,
    check_class_token,
)
from xfcost.formulas.hidden_width import Ratio, check_hidden, hidden_width
from xfcost.formulas.layer import PerToken
from xfcost.formulas.rows import elementwise, linear, move, on_raw_input
from xfcost.formulas.tensors import copied


class Mlp(PerToken, frozen=True, kw_only=True, tag="mlp"):
    """Position-wise feed-forward network act(xW₁ + b₁)W₂ + b₂ (Vaswani et al. 2017, §3.3).

    fc1   N·d·H MACs, d·H + H parameters
    act   N·H elements
    fc2   N·H·d MACs, H·d + d parameters

    In k `chunks` of the sequence, one after the other (Kitaev et al. 2020, §3), ⌈N/k⌉·H hidden elements are alive at a
    time in place of N·H, for the same work; the answers are joined. As `torch.chunk` cuts, k need not divide N.

    With `tokens: class_token` it is the special tokens' alone: N is then 1 where a class token is the only one (CaiT,
    Touvron et al. 2021, §3), and the grid's tokens pass by.
    """

    ratio: Ratio = 4.0
    """Hidden width over width, H/d, where `hidden` is not given."""
    hidden: Width | None = None
    """Hidden width H; `ratio`·d by default."""
    act: ActKind = "gelu"
    """Activation function between the two linear maps."""
    bias: bool = True
    """Whether the two linear maps have biases."""
    chunks: Annotated[int, msgspec.Meta(ge=1, le=2**12), Letter(None)] = 1
    """Number k of parts of the sequence that run one after the other, to keep fewer hidden elements in memory."""
    tokens: Literal["all", "class_token"] = "all"
    """Whether all tokens pass through, or the class token alone (CaiT)."""
    out_width: Width | None = None
    """Output width; d by default. The residual then projects x to it."""

    @property
    def special_tokens_only(self) -> bool:
        return self.tokens == "class_token"

    def check(self, place: Place) -> None:
        check_hidden(self.hidden, self.ratio, place.dim)
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

    def inner(self, width: Number) -> Number:
        """H, the hidden width."""
        return hidden_width(self.hidden, self.ratio, width)

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
                f"{size * hidden:,} hidden elements per sample are alive at a time in place of {n * hidden:,}, for the "
                "same MACs (training keeps all of them, unless they are worked out again, as a reversible stage does)"
            )
