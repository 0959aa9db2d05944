"""Mamba and RWKV: recurrent models with a state of constant size."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from xfcost.formulas.component import Heads, Length, Rows, Side, Width
from xfcost.importing.family import Aliases, Draft, Values, classes
from xfcost.importing.text import DEFAULT_LENGTH, TextFamily
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.spec.grammar import Repeat

_LENGTH: Final = f"Assumed: {DEFAULT_LENGTH} tokens; no weight depends on the length."
_TRAINING: Final = frozenset({
    "residual_in_fp32", "time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor",
    "rescale_prenorm_residual", "use_mambapy", "use_associative_scan", "fused_add_norm", "pad_vocab_size_multiple",
})  # fmt: skip


class MambaFamily(TextFamily, frozen=True, kw_only=True):
    """MambaConfig of transformers."""

    paper = "Gu and Dao 2023, arXiv:2312.00752"
    architectures = classes("Mamba", "CausalLM Model")
    supported_values: ClassVar[Values] = {
        "use_bias": ((False,), "the grammar has no projections with biases here"),
        "use_conv_bias": ((True,), "the grammar has no convolution without a bias here"),
        "rms_norm": ((True,), "transformers uses an RMS norm and ignores this field"),
        "ssm_cfg": (({}, None), "transformers ignores options of the first release"),
    }
    # fields of the first release, which transformers ignores
    mirrors: ClassVar[Aliases] = {"d_model": "hidden_size", "n_layer": "num_hidden_layers", "d_inner": "inner_width",
                         "intermediate_size": "inner_width"}  # fmt: skip
    cost_free = _TRAINING

    vocab_size: Rows = 50280
    hidden_size: Width = 768
    state_size: Width = 16
    num_hidden_layers: Repeat = 32
    expand: Side = 2
    conv_kernel: Side = 4
    hidden_act: Literal["silu", "swish"] = "silu"
    time_step_rank: Width | Literal["auto"] = "auto"

    @property
    def inner_width(self) -> int:
        """The width inside a block."""
        return self.expand * self.hidden_size

    def draft(self, architecture: str) -> Draft:
        default_rank = -(-self.hidden_size // 16)
        rank = {} if self.time_step_rank in ("auto", default_rank) else {"rank": self.time_step_rank}
        component = {"kind": "mamba", "state": self.state_size, "conv": self.conv_kernel, "expand": self.expand} | rank
        return _state_space(self, architecture, component)


class Mamba2Family(TextFamily, frozen=True, kw_only=True):
    """Mamba2Config of transformers."""

    paper = "Dao and Gu 2024, arXiv:2405.21060"
    architectures = classes("Mamba2", "CausalLM Model")
    supported_values: ClassVar[Values] = {
        "use_bias": ((False,), "the grammar has no projections with biases here"),
        "use_conv_bias": ((True,), "the grammar has no convolution without a bias here"),
        "norm_before_gate": ((False,), "transformers gates before the norm and ignores this field"),
        "rms_norm": ((True,), "transformers uses an RMS norm and ignores this field"),
    }
    cost_free = _TRAINING | {"time_step_rank", "time_step_limit"}

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
        groups = {} if self.n_groups == 1 else {"groups": self.n_groups}
        component = {"kind": "mamba2", "state": self.state_size, "head_dim": self.head_dim} | groups
        component |= {"conv": self.conv_kernel, "expand": self.expand, "chunk": self.chunk_size}
        return _state_space(self, architecture, component)


def _state_space(config: MambaFamily | Mamba2Family, architecture: str, component: dict[str, Any]) -> Draft:
    """Blocks of one `component` with RMS norms, then a language model head or a norm."""
    head = config.decoder_head(architecture, "rms_norm")
    repeats, norms = [(config.num_hidden_layers, [component])], {"norm": "rms_norm"}
    return config.text(DEFAULT_LENGTH, config.hidden_size, repeats, head, [_LENGTH], norm="rms_norm", residual=norms)


class Rwkv(TextFamily, frozen=True, kw_only=True):
    """RwkvConfig of transformers: RWKV-4."""

    paper = "Peng et al. 2023, arXiv:2305.13048"
    architectures = classes("Rwkv", "CausalLM Model")
    aliases: ClassVar[Aliases] = {"max_position_embeddings": "context_length"}
    cost_free = frozenset({"rescale_every"})

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
        is_default = self.intermediate_size in (None, 4 * self.hidden_size)
        channel = {"kind": "rwkv_channel"} | ({} if is_default else {"hidden": self.intermediate_size})
        return self.text(
            self.context_length,
            self.hidden_size,
            [(self.num_hidden_layers, [{"kind": "rwkv_time"}, channel])],
            self.decoder_head(architecture, "layer_norm"),
            norm="layer_norm",
            embed=[{"kind": "norm"}],
        )
