"""A language-model head: logits over the vocabulary at every token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import msgspec

from xfcost.formulas.component import ComponentError, NormKind, Operation, Place, Share
from xfcost.formulas.layer import Head
from xfcost.formulas.rows import elementwise, linear, move, norm
from xfcost.formulas.tensors import view
from xfcost.ledger.accounts import WeightsRead


class LanguageModel(Head, frozen=True, kw_only=True, tag="language_model"):
    """norm, optional scale, then logits over the vocabulary at every token: N·d·V MACs.

    Of a prompt only the last position's logits are computed (`generate` and `prefill`): d·V MACs. The norm and the
    scale are of all N tokens there too, as in transformers, which slices right before `lm_head`.

    With `share: name` the table is the token embedding's (Press and Wolf 2017): no parameters of its own, but for the
    V of a bias.
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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, last = place.grid.total, place.dim, place.logits == "last"
        yield from norm(self.norm, "norm", n, d)
        if self.scale == "rsqrt_dim":
            yield elementwise("scale", "Scale 1/√d", "multiply", n * d)
        if last:
            yield move("last", "Take the last position", tensors=view((n, d), (d,)))
        head = linear("linear", "Vocabulary scores", 1 if last else n, d, place.vocabulary, bias=self.bias)
        table = d * place.vocabulary if self.share else 0
        read = WeightsRead(head.params, at_most=head.params)
        yield msgspec.structs.replace(head, params=head.params - table, weights_read=read, shared=self.share)
