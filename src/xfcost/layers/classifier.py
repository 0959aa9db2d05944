"""A classification head: of one vector, or of every token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from xfcost.formulas.component import ComponentError, Letter, NormKind, Number, Observed, Operation, Place, Rows
from xfcost.formulas.layer import Head
from xfcost.formulas.rows import elementwise, linear, move, norm
from xfcost.formulas.tensors import copied, view
from xfcost.ledger.tensors import INPUT

# Two tokens, each with a classifier of its own, in either order.
TwoTokens = Annotated[list[Literal["class_token", "distillation_token"]], msgspec.Meta(min_length=2, max_length=2)]


class Classifier(Head, frozen=True, kw_only=True, tag="classifier"):
    """norm, pool, linear: the class token's vector (ViT) or the mean of all tokens (Swin), then d·classes MACs.

    `pool: [class_token, distillation_token]` has a linear map for each of the two tokens, whose answers are averaged at
    inference (Touvron et al. 2021, DeiT, §4): 2·d·classes MACs.

    With `norm_after_pool` the one pooled vector is normalised, d elements in place of N·d (ConvNeXt).

    With `pool: none` every token is classified, N·d·classes MACs: a tagger, or a decoder whose last answer is taken.
    """

    pool: Literal["class_token", "mean", "none"] | TwoTokens = "mean"
    """What is classified: the class token, the mean of all tokens, two named special tokens, or every token (`none`).
    """
    norm: NormKind = "layer_norm"
    """Norm before the linear map."""
    norm_after_pool: bool = False
    """Whether the pooled vector is normalised, in place of all N tokens."""
    classes: Annotated[Rows, Letter("K")] = 1000
    """Number of classes K."""
    bias: bool = True
    """Whether the linear map has a bias."""

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        normed = list(norm(self.norm, "norm", 1 if self.norm_after_pool else n, d))
        yield from () if self.norm_after_pool else normed
        if self.pool == "mean":
            yield elementwise("pool", "Mean over tokens", "mean", n * d, tensors=copied((n, d), (d,)))
        elif self.pool != "none":
            yield move("pool", "Take the class token", tensors=view((n, d), (d,)))
        yield from normed if self.norm_after_pool else ()
        yield self._linear("linear", "Classifier", n if self.pool == "none" else 1, d)
        if self.distilled:
            taken = view((n, d), (d,), INPUT if self.norm == "none" else "norm")
            yield move("distillation_pool", "Take the distillation token", tensors=taken)
            yield self._linear("distillation_linear", "Classifier (distillation)", 1, d)
            both = copied((self.classes,), (self.classes,), "linear", "distillation_linear")
            title = "Average of both classifiers"
            yield elementwise("average", title, "add + multiply", self.classes, tensors=both)

    def _linear(self, path: str, title: str, n: Number, d: Number) -> Operation:
        row = linear(path, title, n, d, self.classes, bias=self.bias)
        return msgspec.structs.replace(row, takes_input=True) if self.norm == "none" else row
