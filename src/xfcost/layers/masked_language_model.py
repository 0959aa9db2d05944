"""A masked-language-model head, with next-sentence prediction (BERT)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xfcost.formulas.component import ActKind, ComponentError, NormKind, Operation, Place, Share
from xfcost.formulas.layer import Head
from xfcost.formulas.rows import elementwise, linear
from xfcost.formulas.tensors import within
from xfcost.layers.language_model import LanguageModel
from xfcost.layers.pooler import Pooler
from xfcost.ledger.tensors import INPUT


class MaskedLanguageModel(Head, frozen=True, kw_only=True, tag="masked_language_model"):
    """norm(act(xW + b)), then logits over the vocabulary, with a bias, at every token (Devlin et al. 2019, §3.1).

        transform      N·d² MACs, d² + d parameters
        act, norm      N·d elements
        linear         N·d·V MACs, V parameters where the table is the token embedding's, d·V more where it isn't
        next_sentence  a pooler of the first token, d² + d parameters, and 2 answers of it, 2·d + 2

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        yield linear("transform", "Transform before the scores", n, d, d)
        yield elementwise("act", "Activation of the transform", self.act, n * d)
        yield from self.scores.operations(place)
        if self.next_sentence:
            for row in Pooler().operations(place):
                yield within(row, "pooler_", INPUT)
            yield linear("next_sentence", "Does the next sentence follow?", 1, d, 2)
