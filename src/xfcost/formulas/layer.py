"""The bases of layers: embedding layers, stage transitions, heads, and sub-layers that mix no tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from xfcost.formulas.component import Component, SubLayer

Takes = Literal["image", "video", "tokens", "embedded"]


class Embed(Component, frozen=True):
    """An embedding layer, a step of `embed:`: pixels or token numbers become tokens of width d."""

    takes: ClassVar[tuple[Takes, ...]] = ("embedded",)
    """What it can be given: the input itself, where it is the first step, or `embedded`, tokens of width d."""
    axes: ClassVar[int] = 1
    """Axes of the grid that it lays a sequence out on."""
    distillation: ClassVar[bool] = False
    """Does it add a distillation token, which a head may pool beside the class token?"""
    folds: ClassVar[bool] = False
    """Does it take the grid's last axis into the width? N then counts along the others, and that axis stays."""


class Enter(Component, frozen=True):
    """A stage transition, a step of `enter:`: it may change the grid and the width."""

    pools: ClassVar[bool] = False
    """Do as many tokens leave it, however many come? At the first stage, N then counts those that come."""

    @property
    def reads_stage(self) -> int | None:
        """The stage (1 is the first) whose output it reads too; its place's memory."""
        return None


class Head(Component, frozen=True):
    """The model's exit (`head:`)."""

    predicts_next: ClassVar[bool] = False
    """Do its logits at a position predict the next token, so that a prompt needs those of its last position alone?"""

    @property
    def distilled(self) -> bool:
        """Are there two classifiers, one of them taught by a teacher?"""
        return False

    def without_extra_tokens(self) -> Head:
        """Itself where no extra tokens stand (to compare on the grid alone)."""
        return self


class PerToken(SubLayer, frozen=True):
    """A sub-layer whose output at a token depends on that token alone."""

    token_wise: ClassVar[bool] = True
