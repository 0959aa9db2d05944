"""DistilBERT: BERT without token types and without a pooler."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.activations import act, mlp
from xfcost.importing.family import Draft, classes
from xfcost.importing.text import TABLE, TextFamily, answer_span_head, token_classifier
from xfcost.spec.grammar import Repeat


class DistilBert(TextFamily, frozen=True, kw_only=True):
    """DistilBertConfig of transformers."""

    paper: ClassVar = "Sanh et al. 2019, arXiv:1910.01108"
    architectures: ClassVar = classes(
        "DistilBert",
        "Model MaskedLM SequenceClassification MultipleChoice TokenClassification QuestionAnswering",
    )
    aliases: ClassVar = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    heads_and_width: ClassVar = ("n_heads", "dim")
    cost_free: ClassVar = frozenset({"qa_dropout", "seq_classif_dropout", "tie_weights_"})

    vocab_size: Rows = 30522
    max_position_embeddings: Length = 512
    sinusoidal_pos_embds: bool = False
    n_layers: Repeat = 6
    n_heads: Heads = 12
    dim: Width = 768
    hidden_dim: Width = 3072
    activation: Literal["gelu", "relu"] = "gelu"

    def draft(self, architecture: str) -> Draft:
        block = [{"kind": "full", "heads": self.n_heads}, mlp(self.hidden_dim, self.activation)]
        remark = (
            "sinusoidal_pos_embds: the sinusoids are a fixed table; counted as parameters, as transformers stores them."
        )
        return self.text(
            self.max_position_embeddings,
            self.dim,
            [(self.n_layers, block)],
            self._head(architecture),
            [remark] if self.sinusoidal_pos_embds else [],
            embed=[{"kind": "position", "length": self.max_position_embeddings}, {"kind": "norm"}],
            residual={"place": "post"},
        )

    def _head(self, architecture: str) -> dict[str, Any]:
        if architecture == "DistilBertForQuestionAnswering":
            return answer_span_head(self.num_labels)
        table = {"share": TABLE} if self.tie_word_embeddings else {}
        pooler = {"kind": "pooler", "act": "relu"}
        heads: dict[str, dict[str, Any]] = {
            "DistilBertModel": {},
            "DistilBertForMaskedLM": {"kind": "masked_language_model"} | act(self.activation) | table,
            "DistilBertForSequenceClassification": pooler | {"classes": self.num_labels},
            "DistilBertForMultipleChoice": pooler | {"classes": 1},
            "DistilBertForTokenClassification": token_classifier(self.num_labels),
        }
        return heads[architecture]
