"""Llama, Mistral, Qwen2: RMS norms, rotary positions, grouped keys; Mixtral and DeepSeek with mixtures of experts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.family import Activation, Aliases, Draft, Values, check_heads, classes, gated
from xfcost.importing.text import Repeats, TextFamily, Theta, check_partial_rotary, theta_and_remarks
from xfcost.layers.moe import Experts
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

    def attention(self, theta: dict[str, float], window: int | None, **biases: bool) -> dict[str, Any]:
        """The mixer of a block."""
        heads, groups = self.num_attention_heads, self.num_key_value_heads or self.num_attention_heads
        return (
            {"kind": "full", "heads": heads}
            | ({} if groups == heads else {"kv_heads": groups})
            | ({} if heads * self.head_width == self.hidden_size else {"head_dim": self.head_width})
            | {"causal": True, "position": "rope"}
            | ({} if window is None else {"window": window})
            | theta
            | biases
        )

    def drafted(
        self, architecture: str, feed_forward: dict[str, Any], windows: Sequence[int | None] = (), /, **biases: bool
    ) -> Draft:  # fmt: skip
        """Blocks of attention and `feed_forward`; layers have those `windows` that are shorter than the context."""
        theta, remarks = self.rope()
        length, windows = self.max_position_embeddings, windows or (None,) * self.num_hidden_layers
        runs = groupby(None if window is None or window >= length else window for window in windows)
        repeats: list[tuple[int, list[Any]]] = [
            (sum(1 for _ in layers), [self.attention(theta, window, **biases), feed_forward]) for window, layers in runs
        ]
        return self.decoder(architecture, repeats, remarks)


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
        biases = {} if self.attention_bias else {"projection_bias": False}
        feed_forward = gated("hidden_act", self.hidden_act, self.intermediate_size, bias=self.mlp_bias)
        return self.drafted(architecture, feed_forward, **biases)


class Mistral(GroupedQuery, frozen=True, kw_only=True):
    """MistralConfig of transformers."""

    paper = "Jiang et al. 2023, arXiv:2310.06825"
    architectures = classes("Mistral", TASKS)

    intermediate_size: Width = 14336
    num_key_value_heads: Heads | None = 8
    max_position_embeddings: Length = 131072
    sliding_window: Length | None = 4096

    def draft(self, architecture: str) -> Draft:
        feed_forward = gated("hidden_act", self.hidden_act, self.intermediate_size)
        windows = (self.sliding_window,) * self.num_hidden_layers
        return self.drafted(architecture, feed_forward, windows, projection_bias=False)


# Of layers, without and with a window.
_TYPES: Final = ("full_attention", "sliding_attention")


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
        if self.layer_types and len(self.layer_types) != self.num_hidden_layers:
            raise ComponentError(
                "layer_types", f"expected {self.num_hidden_layers} words, one per layer, got {len(self.layer_types)}"
            )
        for word in self.layer_types or []:
            if word not in _TYPES:
                raise ComponentError("layer_types", f"expected {' or '.join(_TYPES)}, got {word!r}")

    def draft(self, architecture: str) -> Draft:
        feed_forward = gated("hidden_act", self.hidden_act, self.intermediate_size)
        window, first = self.sliding_window if self.use_sliding_window else None, self.max_window_layers
        types = self.layer_types or [_TYPES[layer >= first] for layer in range(self.num_hidden_layers)]
        windows = [window if one == _TYPES[1] else None for one in types]
        return self.drafted(architecture, feed_forward, windows, output_bias=False)


# Layers before the first one with experts.
DenseLayers = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
_TRAINING = frozenset({"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"})


class Mixtral(GroupedQuery, frozen=True, kw_only=True):
    """MixtralConfig of transformers."""

    paper = "Jiang et al. 2024, arXiv:2401.04088"
    architectures = classes("Mixtral", TASKS)
    aliases: ClassVar[Aliases] = {"num_experts": "num_local_experts"}
    cost_free = _TRAINING
    default_theta: ClassVar[float] = 1000000.0

    intermediate_size: Width = 14336
    num_key_value_heads: Heads | None = 8
    max_position_embeddings: Length = 131072
    sliding_window: Length | None = None
    num_experts_per_tok: Experts = 2
    num_local_experts: Experts = 8

    def check(self) -> None:
        super().check()
        check_active_experts(self.num_experts_per_tok, "num_local_experts", self.num_local_experts)

    def draft(self, architecture: str) -> Draft:
        moe = {
            "kind": "moe",
            "experts": self.num_local_experts,
            "active": self.num_experts_per_tok,
            "router": "softmax",
            "expert": gated("hidden_act", self.hidden_act, self.intermediate_size),
        }
        windows = (self.sliding_window,) * self.num_hidden_layers
        return self.drafted(architecture, moe, windows, projection_bias=False)


class Deepseek(Decoder, frozen=True, kw_only=True):
    """DeepSeek: multi-head latent attention; a few dense layers, then layers with routed and shared experts."""

    mirrors: ClassVar[Aliases] = {"head_dim": "qk_rope_head_dim", "qk_head_dim": "key_width"}
    # training and parallelism
    cost_free = _TRAINING | {
        "aux_loss_alpha", "ep_size", "moe_layer_freq", "seq_aux", "rope_interleave", "num_mtp_layers",
        "num_nextn_predict_layers",
    }  # fmt: skip

    intermediate_size: Width = 11008
    moe_intermediate_size: Width = 1407
    num_key_value_heads: Heads | None = None
    first_k_dense_replace: DenseLayers = 0
    kv_lora_rank: Width = 512
    q_lora_rank: Width | None = 1536
    qk_nope_head_dim: Width = 128
    qk_rope_head_dim: Width = 64
    v_head_dim: Width = 128
    n_routed_experts: Experts = 64
    n_shared_experts: Experts = 2
    num_experts_per_tok: Experts | None = None
    n_group: Experts | None = None
    topk_group: Experts | None = None
    norm_topk_prob: bool = False
    routed_scaling_factor: float = 1.0
    attention_bias: bool = False

    @property
    def key_width(self) -> int:
        """The width of a head's queries and keys."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def grouped(self) -> bool:
        """Does the router choose groups of experts first?"""
        raise NotImplementedError

    def check(self) -> None:
        super().check()
        if self.num_key_value_heads not in (None, self.num_attention_heads):
            raise ComponentError(
                "num_key_value_heads",
                f"expected num_attention_heads, {self.num_attention_heads}, got {self.num_key_value_heads}: every head "
                "projects its own keys from the latent",
            )
        if self.qk_rope_head_dim % 2:
            raise ComponentError(
                "qk_rope_head_dim", f"{self.qk_rope_head_dim} is odd, and rotary positions rotate pairs of columns"
            )
        if self.routed_scaling_factor <= 0:
            raise ComponentError("routed_scaling_factor", f"expected more than 0, got {self.routed_scaling_factor}")
        check_active_experts(self.num_experts_per_tok, "n_routed_experts", self.n_routed_experts)
        if self.grouped:
            self._check_groups(self.n_group, self.topk_group)

    def _check_groups(self, groups: int | None, active: int | None) -> None:
        if groups is None or active is None:
            missing = "n_group" if groups is None else "topk_group"
            raise ComponentError(missing, "expected a number of groups, got null: the router chooses groups of experts")
        experts = self.n_routed_experts
        if experts % groups or experts // groups < self.min_group_size:
            raise ComponentError(
                "n_group",
                f"{experts} experts (n_routed_experts) don't divide into {groups} groups of {self.min_group_size} or "
                f"more; it could be {divisors_text(experts)}",
            )
        if active > groups:
            raise ComponentError("topk_group", f"{active} of {groups} groups (n_group) can't be active")
        available = active * (experts // groups)
        if (self.num_experts_per_tok or 0) > available:
            raise ComponentError(
                "num_experts_per_tok", f"expected at most {available}, the experts of the active groups (topk_group)"
            )

    min_group_size: ClassVar[int] = 1

    def repeats(self, theta: dict[str, float], moe: dict[str, Any]) -> list[tuple[int, list[Any]]]:
        """(times, block) of the dense layers, then of those with experts."""
        dense = min(self.first_k_dense_replace, self.num_hidden_layers)
        query = {} if self.q_lora_rank is None else {"q_rank": self.q_lora_rank}
        value = {} if self.v_head_dim == self.qk_nope_head_dim else {"value_dim": self.v_head_dim}
        mla = {
            "kind": "mla",
            "heads": self.num_attention_heads,
            "head_dim": self.qk_nope_head_dim,
            "rope_dim": self.qk_rope_head_dim,
            "kv_rank": self.kv_lora_rank,
            **query,
            **value,
            "causal": True,
            **theta,
            **({"projection_bias": True} if self.attention_bias else {}),
        }
        feed_forward = gated("hidden_act", self.hidden_act, self.intermediate_size)
        return [(dense, [mla, feed_forward]), (self.num_hidden_layers - dense, [mla, moe])]

    def moe(self) -> dict[str, Any]:
        """The mixture of experts that both versions share."""
        scale = {} if self.routed_scaling_factor == 1 else {"scale": float(self.routed_scaling_factor)}
        return {
            "kind": "moe",
            "experts": self.n_routed_experts,
            "active": self.num_experts_per_tok,
            "expert": gated("hidden_act", self.hidden_act, self.moe_intermediate_size),
            "shared": {"count": self.n_shared_experts},
        } | scale


class DeepseekV2(Deepseek, frozen=True, kw_only=True):
    """DeepseekV2Config of transformers."""

    paper = "DeepSeek-AI 2024, arXiv:2405.04434"
    architectures = classes("DeepseekV2", "CausalLM Model SequenceClassification")
    aliases: ClassVar[Aliases] = {"num_experts": "n_routed_experts"}
    supported_values: ClassVar[Values] = {
        "scoring_func": (("softmax",), "transformers uses a softmax and ignores this field"),
        "mlp_bias": ((False,), "the grammar has no biases that only dense networks have"),
    }

    vocab_size: Rows = 102400
    topk_method: Literal["greedy", "group_limited_greedy"] = "greedy"

    @property
    def grouped(self) -> bool:
        return self.topk_method == "group_limited_greedy"

    def check(self) -> None:
        super().check()
        check_heads("num_attention_heads", self.num_attention_heads, "hidden_size", self.hidden_size)
        if self.norm_topk_prob:
            raise ComponentError(
                "norm_topk_prob", "expected false, got true: transformers does not normalise these weights"
            )

    def draft(self, architecture: str) -> Draft:
        theta, remarks = self.rope()
        groups = {"groups": {"count": self.n_group, "active": self.topk_group}} if self.grouped else {}
        moe = self.moe() | groups | {"normalize": False}
        return self.decoder(architecture, self.repeats(theta, moe), remarks)


class DeepseekV3(Deepseek, frozen=True, kw_only=True):
    """DeepseekV3Config of transformers."""

    paper = "DeepSeek-AI 2024, arXiv:2412.19437"
    architectures = classes("DeepseekV3", "CausalLM Model SequenceClassification TokenClassification")
    aliases: ClassVar[Aliases] = {"num_local_experts": "n_routed_experts"}
    supported_values: ClassVar[Values] = {
        "scoring_func": (("sigmoid",), "transformers uses a sigmoid and ignores this field"),
        "topk_method": (("noaux_tc",), "transformers uses corrected scores and ignores this field"),
    }
    min_group_size: ClassVar[int] = 2

    vocab_size: Rows = 129280
    hidden_size: Width = 7168
    intermediate_size: Width = 18432
    moe_intermediate_size: Width = 2048
    num_hidden_layers: Repeat = 61
    num_attention_heads: Heads = 128
    num_key_value_heads: Heads | None = 128
    n_shared_experts: Experts = 1
    n_routed_experts: Experts = 256
    routed_scaling_factor: float = 2.5
    n_group: Experts | None = 8
    topk_group: Experts | None = 4
    num_experts_per_tok: Experts | None = 8
    first_k_dense_replace: DenseLayers = 3
    norm_topk_prob: bool = True
    max_position_embeddings: Length = 4096

    @property
    def grouped(self) -> bool:
        return True

    def draft(self, architecture: str) -> Draft:
        theta, remarks = self.rope()
        groups = {"count": self.n_group, "active": self.topk_group, "score": "top_two"}
        normalize = {} if self.norm_topk_prob else {"normalize": False}
        moe = self.moe() | {"router": "sigmoid", "groups": groups, "correction": True} | normalize
        remark = "The module for multi-token prediction is left out, as in transformers."
        return self.decoder(architecture, self.repeats(theta, moe), [*remarks, remark])


def check_active_experts(active: int | None, field: str, experts: int) -> None:
    """Raise ComponentError if a token would use more experts than there are, or their number is missing."""
    if active is None:
        raise ComponentError("num_experts_per_tok", "is missing: the number of experts per token has no default")
    if active > experts:
        raise ComponentError("num_experts_per_tok", f"a token can't use {active} of {experts} experts ({field})")
