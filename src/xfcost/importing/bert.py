"""BERT, RoBERTa, XLM-RoBERTa and DistilBERT: learned positions, post-norm, and their heads."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.family import Activation, Aliases, Draft, act, classes, mlp
from xfcost.importing.text import TABLE, TextFamily, answer_span_head, token_classifier
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat

_ABSOLUTE = {"position_embedding_type": (("absolute",), "relative keys and queries are not in the grammar")}


class Bert(TextFamily, frozen=True, kw_only=True):
    """BertConfig of transformers."""

    paper = "Devlin et al. 2019, arXiv:1810.04805"
    architectures = classes(
        "Bert",
        "Model MaskedLM PreTraining LMHeadModel NextSentencePrediction "
        "SequenceClassification MultipleChoice TokenClassification QuestionAnswering",
    )
    heads_and_width = ("num_attention_heads", "hidden_size")
    supported_values = _ABSOLUTE
    # fields of the first release: a pooler of several layers that no model reads
    cost_free = frozenset({
        "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
        "pooler_size_per_head", "pooler_type",
    })  # fmt: skip

    vocab_size: Rows = 30522
    hidden_size: Width = 768
    num_hidden_layers: Repeat = 12
    num_attention_heads: Heads = 12
    intermediate_size: Width = 3072
    hidden_act: Activation = "gelu"
    max_position_embeddings: Length = 512
    type_vocab_size: Rows = 2
    is_decoder: bool = False

    @property
    def length(self) -> int:
        """The largest number of tokens: rows of the position table that the model uses."""
        return self.max_position_embeddings

    def draft(self, architecture: str) -> Draft:
        head = self.head(architecture.removeprefix(_model_name(architecture)))
        if "share" in head and not self.tie_word_embeddings:
            raise ComponentError(
                "tie_word_embeddings",
                "expected true, got false: untied, transformers has a second, unused bias of the logits, which the "
                "grammar does not have",
            )
        causal = {"causal": True} if self.is_decoder else {}
        block = [
            {"kind": "full", "heads": self.num_attention_heads} | causal,
            mlp(self.intermediate_size, self.hidden_act),
        ]
        return self.text(
            self.length,
            self.hidden_size,
            [(self.num_hidden_layers, block)],
            head,
            embed=[*self.embeddings(), {"kind": "norm"}],
            residual={"place": "post"},
        )

    def embeddings(self) -> list[dict[str, Any]]:
        """Position and token type embeddings."""
        return [
            {"kind": "position", "length": self.max_position_embeddings},
            {"kind": "token_type", "types": self.type_vocab_size},
        ]

    def head(self, task: str) -> dict[str, Any]:
        """The head for a task: an architecture's name without the model's (`ForMaskedLM`)."""
        if task == "ForQuestionAnswering":
            return answer_span_head(self.num_labels)
        masked_language_model = {"kind": "masked_language_model"} | act(self.hidden_act) | {"share": TABLE}
        heads: dict[str, dict[str, Any]] = {
            "Model": {"kind": "pooler"},
            "ForMaskedLM": masked_language_model,
            "LMHeadModel": masked_language_model,
            "ForPreTraining": masked_language_model | {"next_sentence": True},
            "ForNextSentencePrediction": {"kind": "pooler", "classes": 2},
            "ForSequenceClassification": {"kind": "pooler", "classes": self.num_labels},
            "ForMultipleChoice": {"kind": "pooler", "classes": 1},
            "ForTokenClassification": token_classifier(self.num_labels),
        }
        return heads[task]


class Roberta(Bert, frozen=True, kw_only=True):
    """RobertaConfig: positions start after the padding token's id; earlier rows are never used."""

    paper = "Liu et al. 2019, arXiv:1907.11692"
    architectures = classes(
        "Roberta",
        "Model MaskedLM CausalLM SequenceClassification MultipleChoice TokenClassification QuestionAnswering",
    )
    cost_free = frozenset()

    vocab_size: Rows = 50265
    pad_token_id: Annotated[int, msgspec.Meta(ge=0)] = 1

    def check(self) -> None:
        super().check()
        if self.pad_token_id >= self.vocab_size:
            raise ComponentError(
                "vocab_size", f"expected more than pad_token_id, {self.pad_token_id}, got {self.vocab_size}"
            )
        if self.length < 1:
            smallest = self.pad_token_id + 2
            raise ComponentError(
                "max_position_embeddings",
                f"expected at least {smallest}, got {self.max_position_embeddings}: positions start after pad_token_id",
            )

    @property
    def length(self) -> int:
        return self.max_position_embeddings - self.pad_token_id - 1

    def head(self, task: str) -> dict[str, Any]:
        if task in ("ForMaskedLM", "ForCausalLM"):
            return {"kind": "masked_language_model", "share": TABLE}  # GELU, whatever hidden_act is
        return super().head(task)


class XlmRoberta(Roberta, frozen=True, kw_only=True):
    """XLMRobertaConfig: RoBERTa with another vocabulary."""

    paper = "Conneau et al. 2020, arXiv:1911.02116"
    architectures = tuple(f"XLM{name}" for name in Roberta.architectures)

    vocab_size: Rows = 30522


class DistilBert(TextFamily, frozen=True, kw_only=True):
    """DistilBertConfig of transformers: BERT without token types and without a pooler."""

    paper = "Sanh et al. 2019, arXiv:1910.01108"
    architectures = classes(
        "DistilBert",
        "Model MaskedLM SequenceClassification MultipleChoice TokenClassification QuestionAnswering",
    )
    aliases: ClassVar[Aliases] = {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    }
    heads_and_width = ("n_heads", "dim")
    cost_free = frozenset({"qa_dropout", "seq_classif_dropout", "tie_weights_"})

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


def _model_name(architecture: str) -> str:
    return next(name for name in ("XLMRoberta", "Roberta", "Bert") if architecture.startswith(name))
