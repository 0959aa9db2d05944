"""Models of text: one stream of tokens, rotary positions; BERT and its kin, GPT-1 and 2, BLOOM, T5."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.family import ACTIVATIONS, Activation, Aliases, Draft, Family, Values, act, classes, gated, mlp
from xfcost.ledger.errors import ComponentError, nearest
from xfcost.spec.grammar import Repeat
from xfcost.spec.reader import shown_value

Theta = Annotated[float, msgspec.Meta(ge=1, le=1e12)]
# Keys of rope_scaling and rope_parameters; all but θ and the type are constants of the angle tables.
_TYPES: Final = ("default", "linear", "dynamic", "yarn", "longrope", "su", "llama3")
_CONSTANTS: Final = frozenset({
    "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
    "attention_factor", "mscale", "mscale_all_dim", "short_factor", "long_factor", "truncate", "finetuned",
})  # fmt: skip


def theta_and_remarks(
    theta: float | None, fields: dict[str, dict[str, Any] | None], default: float
) -> tuple[float, list[str]]:
    """θ, and remarks; `fields` are rope_scaling and rope_parameters.

    Raises:
        ComponentError: a key is unknown, or rotary positions apply to a part of the columns.
    """
    remarks = []
    for name, rope in fields.items():
        if rope is None:
            continue
        _check(name, rope)
        own = rope.get("rope_theta")
        if own is not None and theta not in (None, own):
            raise ComponentError(name, f"its rope_theta {own} and the field rope_theta {theta} disagree; leave one out")
        theta = own if own is not None else theta
        form = rope.get("rope_type", rope.get("type", "default"))
        if form != "default":
            remarks.append(f"{name}: rotary positions of type {form} change constants only, and no cost.")
    return default if theta is None else theta, remarks


def _check(name: str, rope: dict[str, Any]) -> None:
    for key, value in rope.items():
        if key in ("rope_type", "type"):
            if value not in _TYPES:
                raise ComponentError(name, f"its {key} is {shown_value(value)}; expected one of {', '.join(_TYPES)}")
        elif key == "rope_theta":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1e12:  # noqa: PLR2004
                raise ComponentError(name, f"its rope_theta is {shown_value(value)}; expected a number from 1 to 1e12")
        elif key == "partial_rotary_factor":
            check_partial_rotary(name, value, f"its {key}: ")
        elif key not in _CONSTANTS:
            raise ComponentError(
                name, f"its key {shown_value(key)} is not known; {shown_value(value)} could change a cost"
            )


def check_partial_rotary(name: str, value: Any, key: str = "") -> None:
    """Raise ComponentError if rotary positions apply to a part of the columns; `key` is the key inside the field."""
    if value not in (None, 1):
        raise ComponentError(name, f"{key}expected 1, got {shown_value(value)}: rotary positions apply to all columns")


# N where a config has no length.
DEFAULT_LENGTH: Final = 512
# The table that token embedding and head share.
TABLE: Final = "embedding"

# (times, block) of repeated blocks, in order.
Repeats = Sequence[tuple[int, list[Any]]]


class TextFamily(Family, frozen=True, kw_only=True):
    """A family whose input is one stream of tokens."""

    vocab_size: Rows = 32000
    tie_word_embeddings: bool = True

    def text(  # noqa: PLR0913 - the parts of a spec
        self,
        length: int,
        width: int,
        repeats: Repeats,
        head: dict[str, Any] | None,
        remarks: Iterable[str] = (),
        *,
        norm: str | None = None,
        embed: Iterable[dict[str, Any]] = (),
        residual: dict[str, Any] | None = None,
    ) -> Draft:
        """The spec of a model: a token embedding, then `embed`; the blocks; `head`, or without one the last `norm`."""
        keys: dict[str, Any] = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": length},
            **({"residual": residual} if residual else {}),
            "embed": [token(shared=head is not None and "share" in head), *embed],
            "stages": [stage(width, repeats, final_norm=None if head else norm)],
            **({"head": head} if head else {}),
        }
        return Draft(keys, list(remarks))

    def decoder_head(self, architecture: str, norm: str) -> dict[str, Any] | None:
        """The head of a decoder for the task in the name of `architecture`; None without a task."""
        task = "CausalLM" if architecture.endswith("LMHeadModel") else architecture.partition("For")[2]
        return {
            "CausalLM": language_model_head(norm, shared=self.tie_word_embeddings),
            "SequenceClassification": token_classifier(self.num_labels, norm=norm, bias=False),
            "TokenClassification": token_classifier(self.num_labels, norm=norm),
            "QuestionAnswering": token_classifier(2, norm=norm),
        }.get(task)


def stage(dim: int, repeats: Repeats, *, final_norm: str | None = None) -> dict[str, Any]:
    """Repeated blocks, then a norm, if any."""
    present = [(times, block) for times, block in repeats if times]
    norm = [[{"kind": "norm", "norm": final_norm}]] if final_norm else []
    if len(present) == 1:
        depth, block = present[0]
        if not norm:
            return {"dim": dim, "depth": depth, "block": block}
        return {"dim": dim, "blocks": [{"repeat": depth, "blocks": [block]}, *norm]}
    groups: list[Any] = [block if times == 1 else {"repeat": times, "blocks": [block]} for times, block in present]
    return {"dim": dim, "blocks": groups + norm}


def token(*, shared: bool) -> dict[str, Any]:
    """A token embedding; `shared` ties its table to the head."""
    return {"kind": "token"} | ({"share": TABLE} if shared else {})


def language_model_head(norm: str, *, shared: bool, **options: Any) -> dict[str, Any]:
    """A norm and a projection to logits over the vocabulary."""
    return {"kind": "language_model", "norm": norm} | ({"share": TABLE} if shared else {}) | options


def token_classifier(classes: int, *, norm: str = "none", bias: bool = True) -> dict[str, Any]:
    """A classifier of every token."""
    head = {"kind": "classifier", "pool": "none", "norm": norm, "classes": classes}
    return head if bias else head | {"bias": False}


def answer_span_head(num_labels: int) -> dict[str, Any]:
    """Two logits per token: whether an answer starts or ends there.

    Raises:
        ComponentError: `num_labels` is not 2.
    """
    if num_labels != 2:  # noqa: PLR2004 - start and end
        raise ComponentError("num_labels", f"expected 2 (where an answer starts and ends), got {num_labels}")
    return token_classifier(2)


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
        model = next(name for name in ("XLMRoberta", "Roberta", "Bert") if architecture.startswith(name))
        head = self.head(architecture.removeprefix(model))
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
        positions = {"kind": "position", "length": self.max_position_embeddings}
        types = {"kind": "token_type", "types": self.type_vocab_size}
        return self.text(
            self.length,
            self.hidden_size,
            [(self.num_hidden_layers, block)],
            head,
            embed=[positions, types, {"kind": "norm"}],
            residual={"place": "post"},
        )

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


_NORM: Final = "rms_norm"


class T5(Family, frozen=True, kw_only=True):
    """T5Config of transformers: T5, T5 v1.1, FLAN-T5."""

    paper = "Raffel et al. 2020, arXiv:1910.10683"
    architectures = classes("T5", "ConditionalGeneration Model EncoderModel WithLMHeadModel")
    aliases: ClassVar[Aliases] = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    supported_values: ClassVar[Values] = {
        "is_decoder": ((False,), "the streams of an encoder–decoder have their own masks")
    }
    # no weight depends on a length
    cost_free = frozenset({"n_positions", "is_gated_act", "dense_act_fn", "is_encoder_decoder"})

    vocab_size: Rows = 32128
    d_model: Width = 512
    d_kv: Width = 64
    d_ff: Width = 2048
    num_layers: Repeat = 6
    num_decoder_layers: Repeat | None = None
    num_heads: Heads = 8
    relative_attention_num_buckets: Annotated[int, msgspec.Meta(ge=4, le=2**16)] = 32
    relative_attention_max_distance: Annotated[int, msgspec.Meta(ge=2, le=2**31)] = 128
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    """Scale the decoder's outputs by 1/√d; by default the value of tie_word_embeddings."""

    def check(self) -> None:
        form, dash, name = self.feed_forward_proj.rpartition("-")
        if name not in ACTIVATIONS or (dash and form != "gated"):
            near = nearest(self.feed_forward_proj, [*ACTIVATIONS, *(f"gated-{gate}" for gate in ACTIVATIONS)])
            raise ComponentError(
                "feed_forward_proj",
                f"expected an activation, or gated- and one, got {self.feed_forward_proj!r}; {near}",
            )
        if self.relative_attention_max_distance <= self.relative_attention_num_buckets // 2:
            least = self.relative_attention_num_buckets // 2 + 1
            raise ComponentError(
                "relative_attention_max_distance",
                f"expected at least {least}, got {self.relative_attention_max_distance}: exact buckets reach that far",
            )

    @property
    def scaled_head(self) -> bool:
        """Are the decoder's outputs multiplied by 1/√d before the logits?"""
        return self.tie_word_embeddings if self.scale_decoder_outputs is None else self.scale_decoder_outputs

    def draft(self, architecture: str) -> Draft:
        block = [self._self_attention("encoder"), self._feed_forward()]
        encoder = {
            "embed": [token(shared=True)],
            "stages": [stage(self.d_model, [(self.num_layers, block)], final_norm=_NORM)],
        }
        shape = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": DEFAULT_LENGTH},
            "residual": {"norm": _NORM},
        }
        length = f"Assumed: {DEFAULT_LENGTH} tokens in each stream; no weight depends on the length."
        if architecture.endswith("EncoderModel"):
            return Draft(shape | {"embed": [token(shared=False)], "stages": encoder["stages"]}, [length])
        has_head = not architecture.endswith("Model") or architecture == "T5WithLMHeadModel"
        cross = {"kind": "cross"} | self._heads()
        block = [self._self_attention("decoder"), cross, self._feed_forward()]
        depth = self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers
        decoder = {
            "embed": [token(shared=True)],
            "stages": [stage(self.d_model, [(depth, block)], final_norm=None if has_head else _NORM)],
        }
        keys: dict[str, Any] = shape | {"encoder": encoder, "decoder": decoder}
        if not has_head:
            return Draft(keys, [length])
        scale = {"scale": "rsqrt_dim"} if self.scaled_head else {}
        remarks = [length]
        if not self.tie_word_embeddings:
            remarks.append(
                "tie_word_embeddings: false, but transformers 5 ties the head, and so does this spec; earlier versions "
                f"had {self.vocab_size * self.d_model:,} parameters more, which --set head.share=null counts."
            )
        return Draft(keys | {"head": language_model_head(_NORM, shared=True, **scale)}, remarks)

    def _heads(self) -> dict[str, Any]:
        return {"heads": self.num_heads, "head_dim": self.d_kv, "scaled": False, "projection_bias": False}

    def _self_attention(self, stream: str) -> dict[str, Any]:
        """Self-attention; all layers of a stream share one table of buckets."""
        count, distance = self.relative_attention_num_buckets, self.relative_attention_max_distance
        buckets = {} if (count, distance) == (32, 128) else {"count": count, "distance": distance}
        causal = {"causal": True} if stream == "decoder" else {}
        bias = {"kind": "buckets"} | buckets | {"share": f"{stream}_bias"}
        heads = self._heads()
        return {"kind": "full", "heads": heads["heads"], "head_dim": self.d_kv} | causal | heads | {"bias": bias}

    def _feed_forward(self) -> dict[str, Any]:
        form, _, name = self.feed_forward_proj.rpartition("-")
        if not form:
            return mlp(self.d_ff, name, bias=False)
        # in "gated-gelu", gelu is the tanh formula
        return gated("feed_forward_proj", "gelu_new" if name == "gelu" else name, self.d_ff)


class Mt5(T5, frozen=True, kw_only=True):
    """MT5Config of transformers."""

    paper = "Xue et al. 2021, arXiv:2010.11934"
    architectures = classes("MT5", "ConditionalGeneration Model EncoderModel")

    vocab_size: Rows = 250112
    d_ff: Width = 1024
    num_layers: Repeat = 8
    num_heads: Heads = 6
    feed_forward_proj: str = "gated-gelu"

    @property
    def scaled_head(self) -> bool:
        return False
