"""Kinds found in unmodified models of `transformers`, from tiny configurations."""

import logging
from typing import Any, Final

import pytest
import torch

from followed import follow
from xfcost.torch_models.mixing.verdict import FoundOperation

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers = pytest.importorskip("transformers")

TEXT: Final = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FUSED: Final = "_scaled_dot_product_flash_attention_for_cpu"
# Configuration, model, settings, inputs of two sizes, further arguments; name, kind, reads, and computed of what mixes.
MODELS: Final[dict[str, tuple[str, str, dict[str, Any], tuple[int, int], dict[str, Any], list[Any]]]] = {
    "Llama": (
        "LlamaConfig",
        "LlamaModel",
        TEXT | {"num_key_value_heads": 1},
        (12, 20),
        {},
        [(FUSED, "global", 12, None)] * 2,
    ),
    "Longformer": (
        "LongformerConfig",
        "LongformerModel",
        TEXT | {"attention_window": 4, "num_hidden_layers": 1},
        (16, 24),
        {},
        [
            ("bmm", "local", 4, None),
            *[("where", "local", 2, None)] * 2,
            *[(name, "local", 5, None) for name in ("add_", "_softmax", "masked_fill", "bmm")],
        ],
    ),
    "Gemma 2": (
        "Gemma2Config",
        "Gemma2Model",
        TEXT | {"num_key_value_heads": 1, "head_dim": 16, "sliding_window": 4},
        (12, 20),
        {"use_cache": False},
        # scaled, capped (÷, tanh, ×) and masked, pair by pair
        [(name, "local", 4, 12) for name in ("bmm", "mul", "div", "tanh", "mul", "add", "_softmax", "bmm")]
        + [(name, "global", 12, None) for name in ("bmm", "mul", "div", "tanh", "mul", "add", "_softmax", "bmm")],
    ),
    "Mamba": (
        "MambaConfig",
        "MambaModel",
        {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "state_size": 4},
        (12, 20),
        {"use_cache": False},
        [("convolution", "local", 4, None), *[("mul", "global", 12, None)] * 11],
    ),
}


def found(name: str) -> list[FoundOperation]:
    torch.manual_seed(0)
    config, model, settings, sizes, more, _ = MODELS[name]
    module = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    small, large = (((torch.randint(5, 50, (1, size)),), more) for size in sizes)
    return follow(module, *small, larger=large)


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_found_and_all_else_is_per_token(name: str) -> None:
    mixing = [
        (
            one.name.removeprefix("aten."),
            one.kind,
            one.reads.largest if one.reads else None,
            one.computed.largest if one.computed and one.reads and one.computed.largest > one.reads.largest else None,
        )
        for one in found(name)
        if one.kind not in {None, "per-token"}
    ]
    assert mixing == MODELS[name][-1]
