"""GPT-1, GPT-2 and BLOOM: causal attention with biases, learned positions or ALiBi."""

from __future__ import annotations

from typing import ClassVar, Literal

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.family import ACTIVATIONS, Activation, Aliases, Draft, Values, act, classes
from xfcost.importing.text import DEFAULT_LENGTH, TextFamily
from xfcost.spec.grammar import Repeat

_NAMES = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
# Fields of the multiple-choice head, which is not supported; and a second field for the context length.
_SUMMARY = frozenset({
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "n_ctx", "predict_special_tokens", "n_special",
})  # fmt: skip


class Gpt2(TextFamily, frozen=True, kw_only=True):
    """GPT2Config of transformers."""

    paper = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners"
    architectures = classes(
        "GPT2",
        "LMHeadModel Model SequenceClassification TokenClassification QuestionAnswering",
    )
    aliases = _NAMES
    heads_and_width = ("n_head", "n_embd")
    cost_free = _SUMMARY | {"reorder_and_upcast_attn"}

    vocab_size: Rows = 50257
    n_positions: Length = 1024
    n_embd: Width = 768
    n_layer: Repeat = 12
    n_head: Heads = 12
    n_inner: Width | None = None
    activation_function: Activation = "gelu_new"
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False

    def draft(self, architecture: str) -> Draft:
        scaled = {} if self.scale_attn_weights else {"scaled": False}
        hidden = {"ratio": 4} if self.n_inner is None else {"hidden": self.n_inner}
        block = [
            {"kind": "full", "heads": self.n_head, "causal": True} | scaled,
            {"kind": "mlp"} | hidden | act(self.activation_function),
        ]
        remark = (
            "scale_attn_by_inverse_layer_idx: each layer scales its scores by another factor; the cost is the same."
        )
        return self.text(
            self.n_positions,
            self.n_embd,
            [(self.n_layer, block)],
            self.decoder_head(architecture, "layer_norm"),
            [remark] if self.scale_attn_by_inverse_layer_idx else [],
            norm="layer_norm",
            embed=[{"kind": "position", "form": "learned", "length": self.n_positions}],
        )


class Gpt1(TextFamily, frozen=True, kw_only=True):
    """OpenAIGPTConfig of transformers: post-norm, and its "gelu" is the tanh formula."""

    paper = "Radford et al. 2018, Improving Language Understanding by Generative Pre-Training"
    architectures = classes("OpenAIGPT", "LMHeadModel Model SequenceClassification")
    aliases = _NAMES
    heads_and_width = ("n_head", "n_embd")
    cost_free = _SUMMARY

    vocab_size: Rows = 40478
    n_positions: Length = 512
    n_embd: Width = 768
    n_layer: Repeat = 12
    n_head: Heads = 12
    afn: Literal["gelu", "relu", "silu", "swish"] = "gelu"

    def draft(self, architecture: str) -> Draft:
        activation = "gelu_tanh" if self.afn == "gelu" else ACTIVATIONS[self.afn]
        block = [{"kind": "full", "heads": self.n_head, "causal": True}, {"kind": "mlp", "ratio": 4, "act": activation}]
        return self.text(
            self.n_positions,
            self.n_embd,
            [(self.n_layer, block)],
            self.decoder_head(architecture, "none"),
            embed=[{"kind": "position", "form": "learned", "length": self.n_positions}],
            residual={"place": "post"},
        )


class Bloom(TextFamily, frozen=True, kw_only=True):
    """BloomConfig of transformers: ALiBi, and a norm after the embeddings."""

    paper = "BigScience Workshop 2022, arXiv:2211.05100"
    architectures = classes(
        "Bloom",
        "CausalLM Model SequenceClassification TokenClassification QuestionAnswering",
    )
    aliases: ClassVar[Aliases] = {
        "n_embed": "hidden_size",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    heads_and_width = ("n_head", "hidden_size")
    supported_values: ClassVar[Values] = {
        "apply_residual_connection_post_layernorm": ((False,), "the grammar has no residual after the norm"),
        "n_inner": ((None,), "transformers uses 4·hidden_size and ignores this field"),
    }
    cost_free = frozenset({
        "slow_but_exact", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "attention_softmax_in_fp32",
        "bias_dropout_fusion", "masked_softmax_fusion",
    })  # fmt: skip

    vocab_size: Rows = 250880
    hidden_size: Width = 64
    n_layer: Repeat = 2
    n_head: Heads = 8
    seq_length: Length = DEFAULT_LENGTH
    """N; no weight depends on it."""

    def draft(self, architecture: str) -> Draft:
        block = [
            {"kind": "full", "heads": self.n_head, "causal": True, "position": "alibi"},
            {"kind": "mlp", "ratio": 4, "act": "gelu_tanh"},
        ]
        head = self.decoder_head(architecture, "layer_norm")
        repeats = [(self.n_layer, block)]
        return self.text(self.seq_length, self.hidden_size, repeats, head, norm="layer_norm", embed=[{"kind": "norm"}])
