"""T5 and mT5: encoder–decoders with relative position buckets, RMS norms and no biases."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import msgspec

from xfcost.formulas.component import Heads, Rows, Width
from xfcost.importing.family import ACTIVATIONS, Aliases, Draft, Family, Values, classes, gated, mlp
from xfcost.importing.text import DEFAULT_LENGTH, language_model_head, stage, token
from xfcost.ledger.errors import ComponentError, nearest
from xfcost.spec.grammar import Repeat

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
        return Draft(
            keys | {"head": language_model_head(_NORM, shared=True, **scale)}, [length, *self._tying_remarks()]
        )

    def _tying_remarks(self) -> list[str]:
        if self.tie_word_embeddings:
            return []
        remark = (
            "tie_word_embeddings: false, but transformers 5 ties the head, and so does this spec; earlier versions had "
            f"{self.vocab_size * self.d_model:,} parameters more, which --set head.share=null counts."
        )
        return [remark]

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
