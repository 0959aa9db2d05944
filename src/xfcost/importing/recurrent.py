"""Mamba and RWKV: recurrent models with a state of constant size."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from xfcost.formulas.component import Heads, Length, Rows, Side, Width
from xfcost.importing.draft import DEFAULT_LENGTH, Draft, language_model_head, stage, token
from xfcost.importing.family import Family
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.spec.grammar import Repeat

_LENGTH: Final = f"Assumed: {DEFAULT_LENGTH} tokens; no weight depends on the length."
_TRAINING: Final = frozenset({
    "residual_in_fp32", "time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor",
    "rescale_prenorm_residual", "use_mambapy", "use_associative_scan", "fused_add_norm", "pad_vocab_size_multiple",
})  # fmt: skip


class Mamba(Family, frozen=True, kw_only=True):
    """MambaConfig of transformers."""

    paper: ClassVar = "Gu and Dao 2023, arXiv:2312.00752"
    architectures: ClassVar[tuple[str, ...]] = ("MambaForCausalLM", "MambaModel")
    supported_values: ClassVar = {
        "use_bias": ((False,), "the grammar has no projections with biases here"),
        "use_conv_bias": ((True,), "the grammar has no convolution without a bias here"),
        "rms_norm": ((True,), "transformers uses an RMS norm and ignores this field"),
        "ssm_cfg": (({}, None), "transformers ignores options of the first release"),
    }
    # fields of the first release, which transformers ignores
    mirrors: ClassVar = {"d_model": "hidden_size", "n_layer": "num_hidden_layers", "d_inner": "inner_width",
                         "intermediate_size": "inner_width"}  # fmt: skip
    cost_free: ClassVar = _TRAINING

    vocab_size: Rows = 50280
    hidden_size: Width = 768
    state_size: Width = 16
    num_hidden_layers: Repeat = 32
    expand: Side = 2
    conv_kernel: Side = 4
    hidden_act: Literal["silu", "swish"] = "silu"
    time_step_rank: Width | Literal["auto"] = "auto"
    tie_word_embeddings: bool = True

    @property
    def inner_width(self) -> int:
        """The width inside a block."""
        return self.expand * self.hidden_size

    def draft(self, architecture: str) -> Draft:
        has_head = architecture == "MambaForCausalLM"
        default_rank = -(-self.hidden_size // 16)
        rank = {} if self.time_step_rank in ("auto", default_rank) else {"rank": self.time_step_rank}
        component = {"kind": "mamba", "state": self.state_size, "conv": self.conv_kernel, "expand": self.expand} | rank
        return _state_space(self, component, has_head=has_head)


class Mamba2(Family, frozen=True, kw_only=True):
    """Mamba2Config of transformers."""

    paper: ClassVar = "Dao and Gu 2024, arXiv:2405.21060"
    architectures: ClassVar[tuple[str, ...]] = ("Mamba2ForCausalLM", "Mamba2Model")
    supported_values: ClassVar = {
        "use_bias": ((False,), "the grammar has no projections with biases here"),
        "use_conv_bias": ((True,), "the grammar has no convolution without a bias here"),
        "norm_before_gate": ((False,), "transformers gates before the norm and ignores this field"),
        "rms_norm": ((True,), "transformers uses an RMS norm and ignores this field"),
    }
    cost_free: ClassVar = _TRAINING | {"time_step_rank", "time_step_limit"}

    vocab_size: Rows = 32768
    hidden_size: Width = 4096
    num_heads: Heads = 128
    head_dim: Width = 64
    state_size: Width = 128
    num_hidden_layers: Repeat = 64
    expand: Side = 2
    conv_kernel: Side = 4
    n_groups: Heads = 8
    chunk_size: Length = 256
    hidden_act: Literal["silu", "swish"] = "silu"
    tie_word_embeddings: bool = False

    def check(self) -> None:
        inner = self.expand * self.hidden_size
        if self.num_heads * self.head_dim != inner:
            raise ComponentError(
                "num_heads",
                f"expected num_heads·head_dim to be expand·hidden_size, {inner}, got {self.num_heads}·{self.head_dim}",
            )
        if self.num_heads % self.n_groups:
            divisors = divisors_text(self.num_heads)
            raise ComponentError(
                "n_groups", f"doesn't divide the {self.num_heads} heads (num_heads); it could be {divisors}"
            )

    def draft(self, architecture: str) -> Draft:
        has_head = architecture == "Mamba2ForCausalLM"
        groups = {} if self.n_groups == 1 else {"groups": self.n_groups}
        component = {"kind": "mamba2", "state": self.state_size, "head_dim": self.head_dim} | groups
        component |= {"conv": self.conv_kernel, "expand": self.expand, "chunk": self.chunk_size}
        return _state_space(self, component, has_head=has_head)


def _state_space(config: Mamba | Mamba2, component: dict[str, Any], *, has_head: bool) -> Draft:
    """Blocks of one `component` with RMS norms, then a language model head or a norm."""
    shared = has_head and config.tie_word_embeddings
    keys: dict[str, Any] = {
        "input": {"kind": "tokens", "vocabulary": config.vocab_size, "length": DEFAULT_LENGTH},
        "residual": {"norm": "rms_norm"},
        "embed": [token(shared=shared)],
        "stages": [
            stage(
                config.hidden_size, config.num_hidden_layers, [component], final_norm=None if has_head else "rms_norm"
            )
        ],
    }
    return Draft(keys | ({"head": language_model_head("rms_norm", shared=shared)} if has_head else {}), [_LENGTH])


class Rwkv(Family, frozen=True, kw_only=True):
    """RwkvConfig of transformers: RWKV-4."""

    paper: ClassVar = "Peng et al. 2023, arXiv:2305.13048"
    architectures: ClassVar[tuple[str, ...]] = ("RwkvForCausalLM", "RwkvModel")
    aliases: ClassVar = {"max_position_embeddings": "context_length"}
    cost_free: ClassVar = frozenset({"rescale_every"})

    vocab_size: Rows = 50277
    context_length: Length = 1024
    """N; no weight depends on it."""
    hidden_size: Width = 4096
    num_hidden_layers: Repeat = 32
    attention_hidden_size: Width | None = None
    intermediate_size: Width | None = None
    tie_word_embeddings: bool = False

    def check(self) -> None:
        if self.attention_hidden_size not in (None, self.hidden_size):
            raise ComponentError(
                "attention_hidden_size",
                f"expected hidden_size, {self.hidden_size}, got {self.attention_hidden_size}: the grammar has no "
                "other width of time mixing",
            )

    def draft(self, architecture: str) -> Draft:
        has_head = architecture == "RwkvForCausalLM"
        shared = has_head and self.tie_word_embeddings
        is_default = self.intermediate_size in (None, 4 * self.hidden_size)
        channel = {"kind": "rwkv_channel"} | ({} if is_default else {"hidden": self.intermediate_size})
        block = [{"kind": "rwkv_time"}, channel]
        keys: dict[str, Any] = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": self.context_length},
            "embed": [token(shared=shared), {"kind": "norm"}],
            "stages": [
                stage(self.hidden_size, self.num_hidden_layers, block, final_norm=None if has_head else "layer_norm")
            ],
        }
        return Draft(keys | ({"head": language_model_head("layer_norm", shared=shared)} if has_head else {}), [])
