"""Modules of `transformers`, from small configs, as they come: MACs are torch's own on `meta`, where that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from transformers_models import parameters, transformers
from xfcost.torch_models.any_model.ledger import module_ledger

VOCABULARY = 29
TEXT = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24,
    "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 4}
VISION = {key: TEXT[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
VISION |= {"image_size": 16, "patch_size": 4}
SEQUENCE = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
B, N = 2, 7


def tokens(number: int = N) -> Tensor:
    return torch.ones(B, number, dtype=torch.long)


def images() -> Tensor:
    return torch.ones(B, 3, 16, 16)


Inputs = Callable[[], dict[str, Any]]
# class, configuration, inputs
TEXT_INPUT: Inputs = lambda: {"input_ids": tokens()}  # noqa: E731
IMAGE_INPUT: Inputs = lambda: {"pixel_values": images()}  # noqa: E731
MODELS: dict[str, tuple[str, Any, Inputs]] = {
    "BertModel": ("BertConfig", TEXT, TEXT_INPUT),
    "ModernBertModel": ("ModernBertConfig", TEXT | {"cls_token_id": 1, "sep_token_id": 2}, TEXT_INPUT),
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 16, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY}, TEXT_INPUT),
    "LlamaForCausalLM": ("LlamaConfig", GROUPED, TEXT_INPUT),
    "Qwen3ForCausalLM": ("Qwen3Config", GROUPED, TEXT_INPUT),
    "Phi3ForCausalLM": ("Phi3Config", TEXT, TEXT_INPUT),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", GROUPED | {"sliding_window": 4}, TEXT_INPUT),
    "Llama4ForCausalLM": (
        "Llama4TextConfig", GROUPED | {"intermediate_size_mlp": 24, "num_local_experts": 4}, TEXT_INPUT,
    ),
    "MambaForCausalLM": (
        "MambaConfig", {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": VOCABULARY, "state_size": 4},
        TEXT_INPUT,
    ),
    "T5Model": (
        "T5Config",
        {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 3, "num_heads": 4, "vocab_size": VOCABULARY},
        lambda: {"input_ids": tokens(), "decoder_input_ids": tokens(3)},
    ),
    "WhisperModel": (
        "WhisperConfig", SEQUENCE | {"max_source_positions": 20, "num_mel_bins": 8},
        lambda: {"input_features": torch.ones(B, 8, 40), "decoder_input_ids": tokens(5)},
    ),
    "ViTModel": ("ViTConfig", VISION, IMAGE_INPUT),
    "Dinov2Model": ("Dinov2Config", VISION, IMAGE_INPUT),
    "SiglipVisionModel": ("SiglipVisionConfig", VISION, IMAGE_INPUT),
    "SwinModel": (
        "SwinConfig",
        {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
        IMAGE_INPUT,
    ),
    "CLIPModel": (
        "CLIPConfig",
        {"text_config": TEXT | {"max_position_embeddings": N}, "vision_config": VISION, "projection_dim": 8},
        lambda: {"input_ids": tokens(), "pixel_values": images()},
    ),
}  # fmt: skip


def built(name: str, **more: Any) -> nn.Module:
    config, fields, _ = MODELS[name]
    return getattr(transformers, name)(getattr(transformers, config)(**fields | more)).eval()


def torch_macs(model: nn.Module, inputs: dict[str, Any]) -> int:
    """Half of the FLOPs that torch's own counter sees on `meta`."""
    model = model.to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**{name: value.to("meta") for name, value in inputs.items()})
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("name", MODELS)
def test_macs_are_torch_s_own_and_nothing_is_left_uncounted(name):
    model, inputs = built(name), MODELS[name][2]()
    ledger = xfcost.analyze(model, example_inputs=inputs, strict=True)
    assert ledger.total("params") == parameters(model)
    assert ledger.total("traced_macs") == ledger.total("macs")
    assert ledger.total("macs") == torch_macs(model, inputs)


@pytest.mark.parametrize("name", ["BertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "ViTModel"])
def test_eager_and_fused_cost_the_same_and_keep_another_memory(name):
    eager, fused = (
        module_ledger(built(name, attn_implementation=how), (), MODELS[name][2](), trace=False)
        for how in ("eager", "sdpa")
    )
    assert (eager.metadata.attention, fused.metadata.attention) == ("eager", "fused")
    assert eager.total("macs") == fused.total("macs")
    for quantity in ("eager_bytes", "fused_bytes"):
        assert getattr(eager.module, quantity) == getattr(fused.module, quantity) > 0
    # 3 layers · B·h matrices of as many tokens as there are
    side = 17 if name == "ViTModel" else N
    assert eager.total("attention_entries") == 3 * B * 4 * side * side
    assert fused.total("attention_entries") == 3 * B * 4 * side


@pytest.mark.parametrize(("name", "layers"), [("GPT2LMHeadModel", "transformer.h.*"), ("BertModel", "encoder.layer.*")])
def test_layers_are_one_block(name, layers):
    ledger = module_ledger(built(name), (), MODELS[name][2](), trace=False)
    assert {row.times for row in ledger.rows if row.block == layers} == {3}
    assert {row.times for row in ledger.rows if row.block != layers} == {1}


def test_a_mask_that_is_looked_at_changes_no_macs():
    inputs = {"input_ids": tokens(), "attention_mask": tokens()}
    masked = module_ledger(built("BertModel"), (), inputs)
    assert masked.module.tensors == "fake"
    assert masked.total("macs") == module_ledger(built("BertModel"), (), {"input_ids": tokens()}).total("macs")


def test_a_step_with_a_cache_reads_it_and_leaves_it():
    model = built("GPT2LMHeadModel")
    with torch.no_grad():
        past = model(tokens()).past_key_values
    ledger = module_ledger(model, (), {"input_ids": tokens(1), "past_key_values": past})
    # per layer and sample 12·d² for one token, and d·(N + 1) twice; the logits
    assert ledger.total("macs") == B * (3 * (12 * 256 + 2 * 16 * (N + 1)) + 16 * VOCABULARY)
    assert past.get_seq_length() == N
    assert ledger.module.traced == "agrees"


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_grouped_products_of_a_mixture_of_experts_count(device):
    fields = TEXT | {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**fields)).to(device).eval()
    ledger = module_ledger(model, (tokens().to(device),), strict=True)
    attention = 2 * 256 + 2 * 128 + 2 * 16 * N
    # two experts of three maps, and the router
    assert ledger.total("macs") == B * N * (3 * (attention + 2 * 3 * 16 * 24 + 16 * 4) + 16 * VOCABULARY)
