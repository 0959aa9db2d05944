"""The exits: classification from one vector, and scores over a vocabulary at every token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from xfcost.errors import PageError
from xfcost.layers.base import Head
from xfcost.ledger import Operation
from xfcost.mechanisms.base import Place, Rows, Share
from xfcost.mechanisms.rows import elementwise, layer_norm, linear, move


class Classifier(Head, frozen=True, kw_only=True, tag="classifier"):
    """norm, pool, linear: the class token's vector (ViT) or the mean of all tokens (Swin), then d·classes MACs."""

    pool: Literal["class_token", "mean"] = "mean"
    norm: Literal["layer_norm", "none"] = "layer_norm"
    classes: Rows = 1000

    def check(self, place: Place) -> None:
        if self.pool == "class_token" and not place.grid.extra:
            raise PageError(
                "pool", "there is no class token to pool; add {kind: class_token} to `embed`, or use pool: mean"
            )

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        if self.norm == "layer_norm":
            yield layer_norm("norm", "Layer norm", n, d)
        if self.pool == "mean":
            yield elementwise("pool", "Mean over tokens", "mean", n * d)
        else:
            yield move("pool", "Take the class token")
        yield linear("linear", "Classifier", 1, d, self.classes)


class LanguageModel(Head, frozen=True, kw_only=True, tag="language_model"):
    """norm, then scores over the vocabulary at every token: N·d·V MACs, no bias.

    With `share: name` the table is the token embedding's (Press and Wolf 2017): no parameters of its own.
    """

    norm: Literal["layer_norm", "none"] = "layer_norm"
    share: Share | None = None

    def check(self, place: Place) -> None:
        if place.vocabulary is None:
            raise PageError(
                "kind", "'language_model' scores a vocabulary, and the input here is an image; use 'classifier'"
            )

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        return {self.share: (place.vocabulary, place.dim)} if self.share else {}

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        if self.norm == "layer_norm":
            yield layer_norm("norm", "Layer norm", n, d)
        head = linear("linear", "Vocabulary scores", n, d, place.vocabulary, bias=False)
        yield Operation(
            path=head.path,
            title=head.title,
            params=0 if self.share else head.params,
            macs=head.macs,
            flops=head.flops,
            shared=self.share,
        )
