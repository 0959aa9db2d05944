"""Heads: classifiers and language models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod, sqrt
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, common_divisor
from xfcost.formulas.component import (
    ActKind,
    ComponentError,
    Head,
    Letter,
    NormKind,
    Observed,
    Place,
    Rows,
    Share,
    Side,
    Width,
    check_no_special_tokens,
    merging_note,
)
from xfcost.ledger.accounts import WeightsRead
from xfcost.program.convolution import AdaptiveMean, on_grid
from xfcost.program.functions import average, mean, multiplied
from xfcost.program.leaves import Weight
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

# Two tokens, each with a classifier of its own, in either order.
TwoTokens = Annotated[list[Literal["class_token", "distillation_token"]], msgspec.Meta(min_length=2, max_length=2)]


class Classifier(Head, frozen=True, kw_only=True, tag="classifier"):
    """norm, pool, linear: the class token's vector (ViT) or the mean of all tokens (Swin), then d·K MACs for K classes.

    norm                 N·d elements, or d elements with `norm_after_pool` (ConvNeXt), 2d parameters (an RMS norm
                         d parameters), where there is a norm
    linear               d·K MACs, (d + β)·K parameters; with `pool: none` N·d·K MACs
    distillation_linear  d·K MACs, (d + β)·K parameters, with a distillation token

    β is 1 where there is a bias, else 0. `pool: [class_token, distillation_token]` has a linear map for each of the two
    tokens, whose answers are averaged at inference (Touvron et al. 2021, DeiT, §4).

    With `norm_after_pool` the one pooled vector is normalised. With `pool: none` every token is classified: a tagger,
    or a decoder whose last answer is taken.
    """

    pool: Literal["class_token", "mean", "none"] | TwoTokens = "mean"
    """What is classified: the class token, the mean of all tokens, two named special tokens, or every token (`none`).
    """
    norm: NormKind = "layer_norm"
    """Norm before the linear map."""
    norm_after_pool: bool = False
    """Whether the pooled vector is normalised instead of all N tokens."""
    classes: Annotated[Rows, Letter("Y")] = 1000
    """Number of classes K."""
    bias: bool = True
    """Whether the linear map has a bias."""

    titles: ClassVar[Mapping[str, str]] = {
        "average": "Average of both classifiers",
        "distillation_linear": "Classifier (distillation)",
        "linear": "Classifier",
    }

    def without_extra_tokens(self) -> Classifier:
        return self if self.pool == "none" else msgspec.structs.replace(self, pool="mean")

    def check(self, place: Place) -> None:
        if self.pool not in ("mean", "none") and not place.grid.special:
            raise ComponentError(
                "pool", "there is no class token to pool; add {kind: class_token} to `embed`, or use pool: mean"
            )
        if self.norm_after_pool and self.norm == "group_norm":
            raise ComponentError(
                "norm_after_pool", "the group norm of one vector is its layer norm; write norm: layer_norm"
            )
        if self.pool == "none" and self.norm_after_pool:
            raise ComponentError(
                "norm_after_pool", "it normalises one pooled vector, and `pool: none` classifies every token"
            )
        if self.distilled and self.norm_after_pool:
            raise ComponentError("norm_after_pool", "it normalises one pooled vector, and `pool` takes two")
        if self.distilled and len(set(self.pool)) < len(self.pool):
            raise ComponentError("pool", f"expected [class_token, distillation_token], got [{', '.join(self.pool)}]")

    @property
    def distilled(self) -> bool:
        return not isinstance(self.pool, str)

    def observed(self, place: Place) -> Observed:
        return Observed(left_out={"average": "the answers of two tokens are averaged: the logits are of both"})

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        x = x if self.norm_after_pool else t.norm("norm", x, self.norm)
        pooled = x
        if self.pool == "mean":
            pooled = t.leaf("pool", mean, x, title="Mean over tokens")
        elif self.pool != "none":
            pooled = t.leaf("pool", token_of, x, options={"number": 0}, title="Take the class token")
        pooled = t.norm("norm", pooled, self.norm) if self.norm_after_pool else pooled
        answer = t.linear("linear", pooled, self.classes, bias=self.bias)
        if not self.distilled:
            return answer
        last = {"number": place.grid.special - 1}
        distilled = t.leaf("distillation_pool", token_of, x, options=last, title="Take the distillation token")
        other = t.linear("distillation_linear", distilled, self.classes, bias=self.bias)
        return t.leaf("average", average, answer, other)


class FlattenClassifier(Head, frozen=True, kw_only=True, tag="flatten_classifier"):
    """Tokens averaged to a P×P grid, flattened to P²·d numbers, hidden layers, classes (Simonyan and Zisserman 2015).

    pool    an adaptive mean: n tokens along a side are read n + P - gcd(n, P) times, for P that leave
    fc1     P^r·d·H₁ MACs, (P^r·d + 1)·H₁ parameters, whatever N is, on a grid of r axes
    act1    H₁ elements
    fc2     H₁·H₂ MACs, (H₁ + 1)·H₂ parameters, and so on, where there is another hidden layer
    linear  H·K MACs, (H + 1)·K parameters: H units of the last hidden layer, K classes

    VGG has P = 7, and two hidden layers of 4096 with ReLU. The pool changes nothing where the grid is P×P already, as
    of a 224×224 image; it is the public code's, for other sizes.
    """

    pooled: Annotated[Side, Letter(None)]
    """Side P of the grid that the tokens are averaged to, along every axis."""
    hidden: Annotated[list[Width], msgspec.Meta(min_length=1, max_length=2**8)]
    """Widths H of the hidden layers, in order."""
    act: ActKind = "relu"
    """Activation function behind each hidden layer."""
    classes: Annotated[Rows, Letter("Y")] = 1000
    """Number of classes K."""

    def check(self, place: Place) -> None:
        check_no_special_tokens(place.grid, "a grid is pooled and flattened")

    def pooled_sides(self, place: Place) -> tuple[int, ...]:
        """The sides of the pooled grid."""
        return (self.pooled,) * len(place.grid.sides)

    def observed(self, place: Place) -> Observed:
        return Observed(whole=self.pooled)

    def notes(self, place: Place) -> Iterator[str]:
        if prod(self.pooled_sides(place)) > 1:
            yield merging_note(["fc1"])

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        grid = on_grid(x, place.grid.sides)
        pool = AdaptiveMean(self.pooled_sides(place))
        flat = t.run("pool", pool, grid, title="Adaptive average pool", **self._shared(place)).flatten(1)
        y = flat  # which stays alive, as the argument of a public model's `classifier` does
        for number, hidden in enumerate(self.hidden, 1):
            y = t.linear(f"fc{number}", y, hidden, title="Hidden layer")
            y = t.act(f"act{number}", y, self.act, title="Activation")
        return t.linear("linear", y, self.classes, title="Classifier")

    def _shared(self, place: Place) -> dict[str, Any]:
        """Windows of sides that P divides are disjoint, and make new tokens; others share tokens."""
        sides = place.grid.sides
        if all(common_divisor(side, self.pooled) == self.pooled for side in sides):
            return {}
        read = [side + self.pooled - common_divisor(side, self.pooled) for side in sides]
        longest = prod(ceil_div(tokens, self.pooled) for tokens in read)
        return {"mixing": "global", "reads": "N/k", "reads_tokens": longest}


class Pooler(Head, frozen=True, kw_only=True, tag="pooler"):
    """act(W x₀ + b) of the first token, a class token where there is one (BERT's public code; Devlin et al. 2019).

    norm      N·d elements, 2d parameters (an RMS norm d parameters), where there is a norm (ViT's in transformers)
    linear    d·d' MACs, (d + 1)·d' parameters
    act       d' elements
    classify  d'·K MACs, (d' + 1)·K parameters, where K `classes` are asked for (fine-tuned BERT)
    """

    norm: NormKind = "none"
    """Norm before the first token is taken."""
    width: Width | None = None
    """Output width d' of the linear map; d by default."""
    act: ActKind | Literal["tanh"] = "tanh"
    """Activation function after the linear map."""
    classes: Annotated[Rows | None, Letter("Y")] = None
    """Number of classes K of a classifier after the pooler; none by default."""

    titles: ClassVar[Mapping[str, str]] = {
        "act": "Activation of the pooler",
        "classify": "Classifier",
        "linear": "Pooler",
        "pool": "Take the first token",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        first = t.leaf("pool", token_of, t.norm("norm", x, self.norm), options={"number": 0})
        width = place.dim if self.width is None else self.width
        y = t.act("act", t.linear("linear", first, width), self.act)
        return y if self.classes is None else t.linear("classify", y, self.classes)


class LanguageModel(Head, frozen=True, kw_only=True, tag="language_model"):
    """norm, optional scale, then logits over the vocabulary at every token: N·d·V MACs.

    norm    N·d elements, 2d parameters (an RMS norm d parameters), where there is a norm
    scale   N·d multiplications, with `scale`
    linear  N·d·V MACs, or of the last position alone d·V MACs; (d + β)·V parameters, β·V parameters with `share`

    β is 1 where there is a bias, else 0. Of a prompt only the last position's logits are computed (`generate` and
    `prefill`). The norm and the scale are of all N tokens there too, as in transformers, which slices right before
    `lm_head`.

    With `share: name` the table is the token embedding's (Press and Wolf 2017).
    """

    token_wise: ClassVar[bool] = True
    predicts_next: ClassVar[bool] = True
    scores_vocabulary: ClassVar[bool] = True

    norm: NormKind = "layer_norm"
    """Norm before the logits."""
    share: Share | None = None
    """Name of the token embedding whose table computes the logits; by default the head has its own table."""
    bias: bool = False
    """Whether the logits have a bias, V parameters."""
    scale: Literal["none", "rsqrt_dim"] = "none"
    """`rsqrt_dim` multiplies by 1/√d before a tied table (T5's public code)."""

    def check(self, place: Place) -> None:
        if place.vocabulary is None:
            raise ComponentError(
                "kind", "'language_model' scores a vocabulary, and the input has none; use 'classifier'"
            )

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        return {self.share: (place.vocabulary, place.dim)} if self.share else {}

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        x = t.norm("norm", x, self.norm)
        if self.scale == "rsqrt_dim":
            x = t.leaf("scale", multiplied, x, options={"factor": 1 / sqrt(place.dim)}, title="Scale 1/√d")
        if place.logits == "last":
            x = t.leaf("last", last_position, x, title="Take the last position")
        words = place.vocabulary
        bias = [Weight((words,), "zeros", "bias")] if self.bias else []
        table = Weight((words, place.dim), shared=self.share)
        read = words * (place.dim + 1 if self.bias else place.dim)
        facts: dict[str, Any] = {"vocabulary": True, "weights_read": WeightsRead(read, at_most=read)}
        return t.leaf("linear", scores, x, weights=(table, *bias), title="Vocabulary scores", **facts)


class MaskedLanguageModel(Head, frozen=True, kw_only=True, tag="masked_language_model"):
    """norm(act(xW + b)), then logits over the vocabulary, with a bias, at every token (Devlin et al. 2019, §3.1).

        transform      N·d² MACs, d² + d parameters
        act            N·d elements
        norm           N·d elements, 2d parameters (an RMS norm d parameters), where there is a norm
        linear         N·d·V MACs, (d + 1)·V parameters, V parameters where the table is the token embedding's
        pooler_linear  d² MACs, d² + d parameters: a pooler of the first token, with `next_sentence`
        next_sentence  2·d MACs, 2·d + 2 parameters: 2 answers of it, with `next_sentence`

    Logits of all N tokens, as in transformers; the authors' code gathers the masked ones (15 %) first.
    """

    scores_vocabulary: ClassVar[bool] = True

    act: ActKind = "gelu"
    """Activation function of the transform."""
    norm: NormKind = "layer_norm"
    """Norm after the activation."""
    share: Share | None = None
    """Name of the token embedding whose table computes the logits; by default the head has its own table."""
    next_sentence: bool = False
    """Whether a pooler of the first token predicts if the second sentence follows the first."""

    def check(self, place: Place) -> None:
        if place.vocabulary is None:
            raise ComponentError(
                "kind", "'masked_language_model' scores a vocabulary, and the input has none; use 'classifier'"
            )

    @property
    def scores(self) -> LanguageModel:
        """The norm and the logits after the transform."""
        return LanguageModel(norm=self.norm, share=self.share, bias=True)

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        return self.scores.tables(place)

    titles: ClassVar[Mapping[str, str]] = {
        "act": "Activation of the transform",
        "next_sentence": "Does the next sentence follow?",
        "transform": "Transform before the scores",
    }

    def forward(self, t: Operations, x: Tensor, place: Place) -> Any:
        y = t.act("act", t.linear("transform", x, place.dim), self.act)
        words = self.scores.forward(t, y, place)
        if not self.next_sentence:
            return words
        pooled = Pooler().forward(t.part("pooler", titles=Pooler.titles), x, place)
        return words, t.linear("next_sentence", pooled, 2)


def token_of(t: Functions, x: Tensor, *, number: int) -> Tensor:
    """One token's vector: (B, N, D) -> (B, D)."""
    return x.select(1, number)


def last_position(t: Functions, x: Tensor) -> Tensor:
    """(B, N, D) -> (B, 1, D)."""
    return x.narrow(1, x.shape[1] - 1, 1)


def scores(t: Functions, x: Tensor, table: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · tableᵀ + b: (B, N, D), (V, D) -> (B, N, V)."""
    return t.linear_map(x, table, bias)
