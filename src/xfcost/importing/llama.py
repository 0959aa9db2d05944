"""Llama, Mistral, Qwen2: RMS norms, rotary positions, gated feed-forwards, grouped keys and values."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.family import Activation, Draft, classes, gated
from xfcost.importing.text import Repeats, TextFamily, Theta, check_partial_rotary, theta_and_remarks
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.spec.grammar import Repeat

# The default θ of a component.
_THETA: Final = 10000.0


class Decoder(TextFamily, frozen=True, kw_only=True):
    """A decoder of pre-norm blocks with rotary positions."""

    default_theta: ClassVar[float] = 10000.0

    hidden_size: Width = 4096
    num_hidden_layers: Repeat = 32
    num_attention_heads: Heads = 32
    hidden_act: Activation = "silu"
    max_position_embeddings: Length = 2048
    """N; no weight depends on it."""
    tie_word_embeddings: bool = False
    rope_theta: Theta | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float | None = None

    def check(self) -> None:
        super().check()
        check_partial_rotary("partial_rotary_factor", self.partial_rotary_factor)

    def rope(self) -> tuple[dict[str, float], list[str]]:
        """The keys of a component for θ, and remarks."""
        fields = {"rope_scaling": self.rope_scaling, "rope_parameters": self.rope_parameters}
        theta, remarks = theta_and_remarks(self.rope_theta, fields, self.default_theta)
        return ({} if theta == _THETA else {"rope_base": float(theta)}), remarks

    def decoder(self, architecture: str, repeats: Repeats, remarks: list[str]) -> Draft:
        """Embedding, blocks, and the head of `architecture`."""
        head, length = self.decoder_head(architecture, "rms_norm"), self.max_position_embeddings
        norms = {"norm": "rms_norm"}
        return self.text(length, self.hidden_size, repeats, head, remarks, norm="rms_norm", residual=norms)


class GroupedQuery(Decoder, frozen=True, kw_only=True):
    """A decoder with grouped-query attention: key and value heads may be fewer than query heads."""

    num_key_value_heads: Heads | None = None
    head_dim: Width | None = None

    def check(self) -> None:
        super().check()
        heads, groups = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        if heads % groups:
            raise ComponentError(
                "num_key_value_heads",
                f"{heads} heads (num_attention_heads) don't divide into {groups} groups; it could be "
                f"{divisors_text(heads)}",
            )
        if self.head_width < 1 or self.head_width % 2:
            field = "num_attention_heads" if self.head_dim is None else "head_dim"
            raise ComponentError(
                field, f"rotary positions rotate pairs of columns, and a head is {self.head_width} wide"
            )

    @property
    def head_width(self) -> int:
        """d_k."""
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    def attention(self, theta: dict[str, float], **biases: bool) -> dict[str, Any]:
        """The mixer of a block."""
        heads, groups = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        return (
            {"kind": "full", "heads": heads}
            | ({} if groups == heads else {"kv_heads": groups})
            | ({} if heads * self.head_width == self.hidden_size else {"head_dim": self.head_width})
            | {"causal": True, "position": "rope"}
            | theta
            | biases
        )


TASKS: Final = "CausalLM Model SequenceClassification TokenClassification QuestionAnswering"


class Llama(GroupedQuery, frozen=True, kw_only=True):
    """LlamaConfig of transformers: LLaMA, Llama 2 and 3, and models with their layout."""

    paper = "Touvron et al. 2023, arXiv:2302.13971; Grattafiori et al. 2024, arXiv:2407.21783"
    architectures = classes("Llama", TASKS)
    heads_and_width = ("num_attention_heads", "hidden_size")
    cost_free = frozenset({"max_sequence_length", "rope_interleaved"})

    intermediate_size: Width = 11008
    attention_bias: bool = False
    mlp_bias: bool = False

    def draft(self, architecture: str) -> Draft:
        theta, remarks = self.rope()
        biases = {} if self.attention_bias else {"projection_bias": False}
        feed_forward = gated("hidden_act", self.hidden_act, self.intermediate_size, bias=self.mlp_bias)
        block = [self.attention(theta, **biases), feed_forward]
        return self.decoder(architecture, [(self.num_hidden_layers, block)], remarks)


class Mistral(GroupedQuery, frozen=True, kw_only=True):
    """MistralConfig of transformers."""

    paper = "Jiang et al. 2023, arXiv:2310.06825"
    architectures = classes("Mistral", TASKS)

    intermediate_size: Width = 14336
    num_key_value_heads: Heads | None = 8
    max_position_embeddings: Length = 131072
    sliding_window: Length | None = 4096

    def draft(self, architecture: str) -> Draft:
        theta, remarks = self.rope()
        feed_forward = gated("hidden_act", self.hidden_act, self.intermediate_size)
        block = [self.attention(theta, projection_bias=False), feed_forward]
        draft = self.decoder(architecture, [(self.num_hidden_layers, block)], remarks)
        return with_window_note(draft, self.sliding_window, self.max_position_embeddings)


class Qwen2(GroupedQuery, frozen=True, kw_only=True):
    """Qwen2Config of transformers: queries, keys and values have biases, the output has none."""

    paper = "Yang et al. 2024, arXiv:2407.10671"
    architectures = classes("Qwen2", TASKS)
    cost_free = frozenset({"use_mrope"})

    vocab_size: Rows = 151936
    intermediate_size: Width = 22016
    num_key_value_heads: Heads | None = 32
    max_position_embeddings: Length = 32768
    use_sliding_window: bool = False
    sliding_window: Length | None = 4096
    max_window_layers: int = 28
    layer_types: list[str] | None = None

    def check(self) -> None:
        super().check()
        known = ("full_attention", "sliding_attention")
        if self.layer_types and len(self.layer_types) != self.num_hidden_layers:
            raise ComponentError(
                "layer_types", f"expected {self.num_hidden_layers} words, one per layer, got {len(self.layer_types)}"
            )
        for word in self.layer_types or []:
            if word not in known:
                raise ComponentError("layer_types", f"expected {' or '.join(known)}, got {word!r}")

    def draft(self, architecture: str) -> Draft:
        theta, remarks = self.rope()
        feed_forward = gated("hidden_act", self.hidden_act, self.intermediate_size)
        block = [self.attention(theta, output_bias=False), feed_forward]
        draft = self.decoder(architecture, [(self.num_hidden_layers, block)], remarks)
        return with_window_note(
            draft, self.sliding_window if self.use_sliding_window else None, self.max_position_embeddings
        )


def with_window_note(draft: Draft, window: int | None, length: int) -> Draft:
    """`draft`, with a note if the window is shorter than the context."""
    if window is None or window >= length:
        return draft
    note = (
        f"counts the dense matmul of transformers' eager code, where a mask applies the sliding window of {window} at "
        f"N > {window}; kind sliding with window {window} in place of full counts gathered windows"
    )
    return draft._replace(keys={"notes": note, **draft.keys})
