"""Words of other frameworks and of configs of transformers -> the keys and kinds of a spec that they are here."""

from __future__ import annotations

from typing import Final, NamedTuple


class OwnKey(NamedTuple):
    """A key of a spec."""

    place: str
    """Its path, `[]` for each item: `stages[].block[].heads`."""
    kind: str = ""
    """The kind of component that has it, where few have."""

    @property
    def key(self) -> str:
        """Its own word."""
        return self.place.rpartition(".")[2]


_OTHERS: Final[dict[OwnKey, tuple[str, ...]]] = {
    OwnKey("stages[].dim"): (
        "d_model", "hidden_size", "embed_dim", "embedding_dim", "n_embd", "n_embed", "model_dim", "d_embed",
    ),
    OwnKey("stages[].depth"): (
        "n_layers", "n_layer", "num_layers", "num_hidden_layers", "num_blocks", "n_blocks", "layers", "depths",
    ),
    OwnKey("stages[].block[].heads"): ("n_heads", "n_head", "num_heads", "nhead", "num_attention_heads"),
    OwnKey("stages[].block[].kv_heads"): ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    OwnKey("stages[].block[].head_dim"): ("d_head", "head_size", "dim_head"),
    OwnKey("stages[].block[].hidden", "mlp"): (
        "intermediate_size", "ffn_dim", "ffn_hidden_size", "d_ff", "n_inner", "dim_feedforward", "mlp_dim",
    ),
    OwnKey("stages[].block[].ratio", "mlp"): ("mlp_ratio", "ffn_ratio", "expansion_ratio"),
    OwnKey("stages[].block[].size", "window"): ("window_size",),
    OwnKey("stages[].block[].window", "sliding"): ("sliding_window", "attention_window"),
    OwnKey("stages[].block[].experts", "moe"): ("num_experts", "n_experts", "num_local_experts", "n_routed_experts"),
    OwnKey("stages[].block[].active", "moe"): ("num_experts_per_tok", "top_k", "moe_top_k"),
    OwnKey("stages[].block[].state", "mamba"): ("d_state", "state_size", "ssm_state_size"),
    OwnKey("stages[].block[].conv", "mamba"): ("d_conv", "conv_kernel"),
    OwnKey("input.vocabulary"): ("vocab_size", "vocab", "n_vocab"),
    OwnKey("input.length"): (
        "seq_len", "seq_length", "sequence_length", "max_len", "max_length", "max_seq_len", "max_position_embeddings",
        "context_length", "n_positions", "n_ctx", "block_size",
    ),
    OwnKey("input.size"): ("image_size", "img_size"),
    OwnKey("input.channels"): ("in_channels", "in_chans", "num_channels"),
    OwnKey("embed[].size", "patch"): ("patch_size",),
    OwnKey("head.classes", "classifier"): ("num_classes", "n_classes", "num_labels"),
}  # fmt: skip
OWN_KEYS: Final = {word: own for own, words in _OTHERS.items() for word in words}

OWN_KINDS: Final = {
    **dict.fromkeys(("attention", "self_attention", "mha", "multi_head_attention", "attn"), "full"),
    **dict.fromkeys(("ffn", "feed_forward", "feedforward"), "mlp"),
    **dict.fromkeys(("cross_attention",), "cross"),
    **dict.fromkeys(("ssm", "s6"), "mamba"),
    **dict.fromkeys(("mixture_of_experts",), "moe"),
    **dict.fromkeys(("embedding", "token_embedding"), "token"),
    **dict.fromkeys(("text", "ids", "token"), "tokens"),
    **dict.fromkeys(("lm_head",), "language_model"),
}
