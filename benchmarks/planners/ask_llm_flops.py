"""What llm-flops answers to the questions of other_planners.py, as JSON on its last line of output.

FLOPs contain its element-wise ones. For a lower bound its efficiencies are set to 1 (they are 0.5 and 0.8 by default).
Its training analysis halves causal attention by default, and its estimate does not: both are asked without.
"""

from __future__ import annotations

import json
from typing import Any

from llmflops import estimate, get_gpu, training_analysis
from llmflops.config import ModelConfig
from llmflops.memory import kv_cache_bytes, training_activation_bytes

LLAMA2, LLAMA3 = "meta-llama/Llama-2-7b-hf", "meta-llama/Meta-Llama-3-70B"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
GPT3 = ModelConfig(
    name="gpt3-175b",
    hidden_size=12288,
    num_layers=96,
    num_attention_heads=96,
    vocab_size=50257,
    intermediate_size=49152,
    max_position_embeddings=2048,
    mlp_type="standard",
    norm_type="layernorm",
    positional="learned",
    tie_word_embeddings=True,
    attention_bias=True,
    mlp_bias=True,
)


def forward(model: str, tokens: int) -> Any:
    """Its estimate of a forward pass in 16 bits on an A100, at the peaks."""
    given = {"precision": "bf16", "gpu": "A100-80GB-SXM", "compute_efficiency": 1.0, "mem_efficiency": 1.0}
    return estimate(model, batch_size=1, sequence_length=tokens, **given)


def deepseek_cache(layers: int) -> float:
    """KV bytes of one token, of latent attention as in DeepSeek-V2 and V3, which it does not ship."""
    shape = {"hidden_size": 5120, "num_layers": layers, "num_attention_heads": 128, "vocab_size": 102400}
    latent = {"attention_type": "mla", "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    return kv_cache_bytes(ModelConfig(name="deepseek", intermediate_size=12288, **shape, **latent), 1, 1, "bf16")


def main() -> None:
    """Print the answers."""
    step = training_analysis(GPT3, sequence_length=2048, gpu=None, gradient_checkpointing=False, causal=False)["flops"]
    serving = forward(LLAMA2, 512)["details"]["performance"]
    saved = training_activation_bytes(GPT3, 1, 2048, "bf16", gradient_checkpointing=False) / GPT3.num_layers
    answers = {
        "params llama2-7b": forward(LLAMA2, 1)["parameters"],
        "params llama3-70b": forward(LLAMA3, 1)["parameters"],
        "params mixtral-8x7b": forward(MIXTRAL, 1)["parameters"],
        "cache llama2-7b": forward(LLAMA2, 1)["kv_cache"],
        "cache llama3-70b": forward(LLAMA3, 1)["kv_cache"],
        "cache deepseek-v2": deepseek_cache(60),
        "cache deepseek-v3": deepseek_cache(61),
        "flops": forward(LLAMA2, 4096)["forward_flops"] / 4096,
        "prefill": serving["prefill_latency_s"] * 1e3,
        "decode": serving["decode_latency_per_token_s"] * 1e3,
        "training": step["forward"] + step["backward"]["total"],
        "saved, dropout": saved,
        "saved": saved,
        "h100": get_gpu("H100-SXM").peak_tflops["bf16"],
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
