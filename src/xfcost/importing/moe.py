"""Mixtral and DeepSeek: decoders with mixtures of experts."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.component import Heads, Length, Rows, Width
from xfcost.importing.family import Aliases, Draft, Values, check_heads, classes, gated
from xfcost.importing.llama import TASKS, Decoder, GroupedQuery, with_window_note
from xfcost.layers.moe import Experts
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.spec.grammar import Repeat

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
        theta, remarks = self.rope()
        moe = {
            "kind": "moe",
            "experts": self.num_local_experts,
            "active": self.num_experts_per_tok,
            "router": "softmax",
            "expert": gated("hidden_act", self.hidden_act, self.intermediate_size),
        }
        block = [self.attention(theta, projection_bias=False), moe]
        draft = self.decoder(architecture, [(self.num_hidden_layers, block)], remarks)
        return with_window_note(draft, self.sliding_window, self.max_position_embeddings)


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
        "mlp_bias": ((False,), "the grammar has no biases in dense networks alone"),
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
