"""GPT-1, GPT-2 and BLOOM: causal attention with biases, learned positions or ALiBi."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.activations import ACTIVATIONS, Activation, act
from xfcost.importing.draft import (
    DEFAULT_LENGTH,
    Draft,
    check_heads,
    language_model_head,
    stage,
    token,
    token_classifier,
)
from xfcost.importing.family import Family
from xfcost.spec.grammar import Repeat

_NAMES = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
_POSITIONS = {"max_position_embeddings": "n_positions"}
# Fields of the multiple-choice head, which is not supported; and a second field for the context length.
_SUMMARY = frozenset({
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "n_ctx", "predict_special_tokens", "n_special",
})  # fmt: skip


class Gpt2(Family, frozen=True, kw_only=True):
    """GPT2Config of transformers."""

    paper: ClassVar = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners"
    architectures: ClassVar[tuple[str, ...]] = (
        "GPT2LMHeadModel",
        "GPT2Model",
        "GPT2ForSequenceClassification",
        "GPT2ForTokenClassification",
        "GPT2ForQuestionAnswering",
    )
    aliases: ClassVar = _NAMES | _POSITIONS
    cost_free: ClassVar = _SUMMARY | {"reorder_and_upcast_attn"}

    vocab_size: Rows = 50257
    n_positions: Length = 1024
    n_embd: Width = 768
    n_layer: Repeat = 12
    n_head: Heads = 12
    n_inner: Width | None = None
    activation_function: Activation = "gelu_new"
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True

    def check(self) -> None:
        check_heads("n_head", self.n_head, "n_embd", self.n_embd)

    def draft(self, architecture: str) -> Draft:
        shared = architecture == "GPT2LMHeadModel" and self.tie_word_embeddings
        scaled = {} if self.scale_attn_weights else {"scaled": False}
        hidden = {"ratio": 4} if self.n_inner is None else {"hidden": self.n_inner}
        block = [
            {"kind": "full", "heads": self.n_head, "causal": True} | scaled,
            {"kind": "mlp"} | hidden | act(self.activation_function),
        ]
        head = {
            "GPT2LMHeadModel": language_model_head("layer_norm", shared=shared),
            "GPT2ForSequenceClassification": token_classifier(self.num_labels, norm="layer_norm", bias=False),
            "GPT2ForTokenClassification": token_classifier(self.num_labels, norm="layer_norm"),
            "GPT2ForQuestionAnswering": token_classifier(2, norm="layer_norm"),
        }.get(architecture)
        keys = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": self.n_positions},
            "embed": [token(shared=shared), {"kind": "position", "form": "learned", "length": self.n_positions}],
            "stages": [stage(self.n_embd, self.n_layer, block, final_norm=None if head else "layer_norm")],
        }
        remark = (
            "scale_attn_by_inverse_layer_idx: each layer scales its scores by another factor; the cost is the same."
        )
        remarks = [remark] if self.scale_attn_by_inverse_layer_idx else []
        return Draft(keys | ({"head": head} if head else {}), remarks)


class Gpt1(Family, frozen=True, kw_only=True):
    """OpenAIGPTConfig of transformers: post-norm, and its "gelu" is the tanh formula."""

    paper: ClassVar = "Radford et al. 2018, Improving Language Understanding by Generative Pre-Training"
    architectures: ClassVar[tuple[str, ...]] = (
        "OpenAIGPTLMHeadModel",
        "OpenAIGPTModel",
        "OpenAIGPTForSequenceClassification",
    )
    aliases: ClassVar = _NAMES | _POSITIONS
    cost_free: ClassVar = _SUMMARY

    vocab_size: Rows = 40478
    n_positions: Length = 512
    n_embd: Width = 768
    n_layer: Repeat = 12
    n_head: Heads = 12
    afn: Literal["gelu", "relu", "silu", "swish"] = "gelu"
    tie_word_embeddings: bool = True

    def check(self) -> None:
        check_heads("n_head", self.n_head, "n_embd", self.n_embd)

    def draft(self, architecture: str) -> Draft:
        shared = architecture == "OpenAIGPTLMHeadModel" and self.tie_word_embeddings
        activation = "gelu_tanh" if self.afn == "gelu" else ACTIVATIONS[self.afn]
        head = {
            "OpenAIGPTLMHeadModel": language_model_head("none", shared=shared),
            "OpenAIGPTForSequenceClassification": token_classifier(self.num_labels, bias=False),
        }.get(architecture)
        block = [{"kind": "full", "heads": self.n_head, "causal": True}, {"kind": "mlp", "ratio": 4, "act": activation}]
        keys: dict[str, Any] = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": self.n_positions},
            "residual": {"place": "post"},
            "embed": [token(shared=shared), {"kind": "position", "form": "learned", "length": self.n_positions}],
            "stages": [stage(self.n_embd, self.n_layer, block)],
        }
        return Draft(keys | ({"head": head} if head else {}), [])


class Bloom(Family, frozen=True, kw_only=True):
    """BloomConfig of transformers: ALiBi, and a norm after the embeddings."""

    paper: ClassVar = "BigScience Workshop 2022, arXiv:2211.05100"
    architectures: ClassVar[tuple[str, ...]] = (
        "BloomForCausalLM",
        "BloomModel",
        "BloomForSequenceClassification",
        "BloomForTokenClassification",
        "BloomForQuestionAnswering",
    )
    aliases: ClassVar = {"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
    supported_values: ClassVar = {
        "apply_residual_connection_post_layernorm": ((False,), "the grammar has no residual after the norm"),
        "n_inner": ((None,), "transformers uses 4·hidden_size and ignores this field"),
    }
    cost_free: ClassVar = frozenset({
        "slow_but_exact", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "attention_softmax_in_fp32",
        "bias_dropout_fusion", "masked_softmax_fusion",
    })  # fmt: skip

    vocab_size: Rows = 250880
    hidden_size: Width = 64
    n_layer: Repeat = 2
    n_head: Heads = 8
    seq_length: Length = DEFAULT_LENGTH
    """N; no weight depends on it."""
    tie_word_embeddings: bool = True

    def check(self) -> None:
        check_heads("n_head", self.n_head, "hidden_size", self.hidden_size)

    def draft(self, architecture: str) -> Draft:
        shared = architecture == "BloomForCausalLM" and self.tie_word_embeddings
        head = {
            "BloomForCausalLM": language_model_head("layer_norm", shared=shared),
            "BloomForSequenceClassification": token_classifier(self.num_labels, norm="layer_norm", bias=False),
            "BloomForTokenClassification": token_classifier(self.num_labels, norm="layer_norm"),
            "BloomForQuestionAnswering": token_classifier(2, norm="layer_norm"),
        }.get(architecture)
        block = [
            {"kind": "full", "heads": self.n_head, "causal": True, "position": "alibi"},
            {"kind": "mlp", "ratio": 4, "act": "gelu_tanh"},
        ]
        keys: dict[str, Any] = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": self.seq_length},
            "embed": [token(shared=shared), {"kind": "norm"}],
            "stages": [stage(self.hidden_size, self.n_layer, block, final_norm=None if head else "layer_norm")],
        }
        return Draft(keys | ({"head": head} if head else {}), [])
