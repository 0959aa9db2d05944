"""The bases of layers: embedding layers, stage transitions, heads, and sub-layers that mix no tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from xfcost.formulas.component import Component, SubLayer

Takes = Literal["image", "video", "tokens", "embedded"]


class Embed(Component, frozen=True):
    """An embedding layer, a step of `embed:`: pixels or token ids become tokens of width d."""

    takes: ClassVar[tuple[Takes, ...]] = ("embedded",)
    """Inputs that it accepts: the model's input as the first step, or `embedded`, tokens of width d."""
    axes: ClassVar[int] = 1
    """Axes of its output grid, where its input is a sequence."""
    distillation: ClassVar[bool] = False
    """Does it add a distillation token?"""
    folds: ClassVar[bool] = False
    """Does it fold the grid's last axis into the width? N then counts along the other axes."""


class Enter(Component, frozen=True):
    """A stage transition, a step of `enter:`, which may change the grid and the width."""

    pools: ClassVar[bool] = False
    """Is its number of output tokens fixed? At the first stage, N then counts its input tokens."""

    @property
    def reads_stage(self) -> int | None:
        """Number of the earlier stage (1 is the first) whose output it reads, its place's `memory`."""
        return None


class Head(Component, frozen=True):
    """A head (`head:`)."""

    predicts_next: ClassVar[bool] = False
    """Do its logits predict the next token, so that a prompt needs those of its last position alone?"""
    scores_vocabulary: ClassVar[bool] = False
    """Are its outputs logits over the vocabulary of the input's tokens?"""

    @property
    def distilled(self) -> bool:
        """Does it have a second classifier, trained by distillation?"""
        return False

    def without_extra_tokens(self) -> Head:
        """The head without special tokens, to compare on the grid alone."""
        return self


class PerToken(SubLayer, frozen=True):
    """A sub-layer whose output at a token depends on that token alone."""

    token_wise: ClassVar[bool] = True
