"""Mamba and RWKV: models that walk along a sequence with a state of a constant size."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from xfcost.formulas.component import Heads, Length, Rows, Side, Width
from xfcost.importing.draft import DEFAULT_LENGTH, Draft, scores, stage, token
from xfcost.importing.family import Family
from xfcost.ledger.errors import ComponentError, divisors_text
from xfcost.spec.grammar import Repeat

_LENGTH: Final = f"Assumed: {DEFAULT_LENGTH} tokens, as nothing in the model is bound to a length."
_TRAINING: Final = frozenset({
    "residual_in_fp32", "time_step_scale", "time_step_min", "time_step_max", "time_step_init_scheme", "time_step_floor",
    "rescale_prenorm_residual", "use_mambapy", "use_associative_scan", "fused_add_norm", "pad_vocab_size_multiple",
})  # fmt: skip


class Mamba(Family, frozen=True, kw_only=True):
    """MambaConfig of transformers."""

    paper: ClassVar = "Gu and Dao 2023, arXiv:2312.00752"
    architectures: ClassVar[tuple[str, ...]] = ("MambaForCausalLM", "MambaModel")
    only: ClassVar = {
        "use_bias": ((False,), "projections with biases are not in the grammar"),
        "use_conv_bias": ((True,), "a convolution without a bias is not in the grammar"),
        "rms_norm": ((True,), "transformers has an RMS norm, whatever this says"),
        "ssm_cfg": (({}, None), "options of the first release are not read"),
    }
    # transformers doesn't read these, which the first release had
    mirrors: ClassVar = {"d_model": "hidden_size", "n_layer": "num_hidden_layers", "d_inner": "inner",
                         "intermediate_size": "inner"}  # fmt: skip
    uncounted: ClassVar = _TRAINING

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
    def inner(self) -> int:
        """The width inside a block."""
        return self.expand * self.hidden_size

    def draft(self, architecture: str) -> Draft:
        headed = architecture == "MambaForCausalLM"
        usual = -(-self.hidden_size // 16)
        rank = {} if self.time_step_rank in ("auto", usual) else {"rank": self.time_step_rank}
        component = {"kind": "mamba", "state": self.state_size, "conv": self.conv_kernel, "expand": self.expand} | rank
        return _state_space(self, component, headed=headed)


class Mamba2(Family, frozen=True, kw_only=True):
    """Mamba2Config of transformers."""

    paper: ClassVar = "Dao and Gu 2024, arXiv:2405.21060"
    architectures: ClassVar[tuple[str, ...]] = ("Mamba2ForCausalLM", "Mamba2Model")
    only: ClassVar = {
        "use_bias": ((False,), "projections with biases are not in the grammar"),
        "use_conv_bias": ((True,), "a convolution without a bias is not in the grammar"),
        "norm_before_gate": ((False,), "transformers gates before the norm, whatever this says"),
        "rms_norm": ((True,), "transformers has an RMS norm, whatever this says"),
    }
    uncounted: ClassVar = _TRAINING | {"time_step_rank", "time_step_limit"}

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
            could = divisors_text(self.num_heads)
            raise ComponentError(
                "n_groups", f"doesn't divide the {self.num_heads} heads (num_heads); it could be {could}"
            )

    def draft(self, architecture: str) -> Draft:
        headed = architecture == "Mamba2ForCausalLM"
        groups = {} if self.n_groups == 1 else {"groups": self.n_groups}
        component = {"kind": "mamba2", "state": self.state_size, "head_dim": self.head_dim} | groups
        component |= {"conv": self.conv_kernel, "expand": self.expand, "chunk": self.chunk_size}
        return _state_space(self, component, headed=headed)


def _state_space(config: Mamba | Mamba2, component: dict[str, Any], *, headed: bool) -> Draft:
    """Blocks of one `component` under RMS norms, with scores over the vocabulary or a norm at the end."""
    shared = headed and config.tie_word_embeddings
    keys: dict[str, Any] = {
        "input": {"kind": "tokens", "vocabulary": config.vocab_size, "length": DEFAULT_LENGTH},
        "residual": {"norm": "rms_norm"},
        "embed": [token(shared=shared)],
        "stages": [
            stage(config.hidden_size, config.num_hidden_layers, [component], end=None if headed else "rms_norm")
        ],
    }
    return Draft(keys | ({"head": scores("rms_norm", shared=shared)} if headed else {}), [_LENGTH])


class Rwkv(Family, frozen=True, kw_only=True):
    """RwkvConfig of transformers: RWKV-4."""

    paper: ClassVar = "Peng et al. 2023, arXiv:2305.13048"
    architectures: ClassVar[tuple[str, ...]] = ("RwkvForCausalLM", "RwkvModel")
    aliases: ClassVar = {"max_position_embeddings": "context_length"}
    uncounted: ClassVar = frozenset({"rescale_every"})

    vocab_size: Rows = 50277
    context_length: Length = 1024
    """N; nothing in the model is bound to it."""
    hidden_size: Width = 4096
    num_hidden_layers: Repeat = 32
    attention_hidden_size: Width | None = None
    intermediate_size: Width | None = None
    tie_word_embeddings: bool = False

    def check(self) -> None:
        if self.attention_hidden_size not in (None, self.hidden_size):
            raise ComponentError(
                "attention_hidden_size",
                f"expected hidden_size, {self.hidden_size}, got {self.attention_hidden_size}: another width of time "
                "mixing is not in the grammar",
            )

    def draft(self, architecture: str) -> Draft:
        headed = architecture == "RwkvForCausalLM"
        shared = headed and self.tie_word_embeddings
        usual = self.intermediate_size in (None, 4 * self.hidden_size)
        channel = {"kind": "rwkv_channel"} | ({} if usual else {"hidden": self.intermediate_size})
        block = [{"kind": "rwkv_time"}, channel]
        keys: dict[str, Any] = {
            "input": {"kind": "tokens", "vocabulary": self.vocab_size, "length": self.context_length},
            "embed": [token(shared=shared), {"kind": "norm"}],
            "stages": [stage(self.hidden_size, self.num_hidden_layers, block, end=None if headed else "layer_norm")],
        }
        return Draft(keys | ({"head": scores("layer_norm", shared=shared)} if headed else {}), [])
