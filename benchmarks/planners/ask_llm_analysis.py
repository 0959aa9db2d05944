"""What llm-analysis answers to the questions of other_planners.py, as JSON on its last line of output.

It has no field for a gated MLP or for a width of the MLP that is no multiple of d: as from a config of transformers,
models that it does not ship get its default of 4·d. Efficiencies are its defaults, 1.
"""

from __future__ import annotations

import json
import logging

logging.disable(logging.CRITICAL)

from llm_analysis.analysis import LLMAnalysis  # noqa: E402
from llm_analysis.config import (  # noqa: E402
    ModelConfig,
    get_dtype_config_by_name,
    get_gpu_config_by_name,
    get_model_config_by_name,
)


def analysis(config: ModelConfig) -> LLMAnalysis:
    """A model on an A100 in 16 bits."""
    return LLMAnalysis(config, get_gpu_config_by_name("a100-sxm-80gb"), get_dtype_config_by_name("w16a16e16"))


def kv_bytes(config: ModelConfig) -> float:
    """Of one token in all layers."""
    return analysis(config).get_memory_kv_cache_per_layer(1, 1) * config.num_layers


def main() -> None:
    """Print the answers."""
    llama2 = get_model_config_by_name("NousResearch_Llama-2-7b-hf")
    llama3 = ModelConfig("llama3-70b", 80, 64, 8192, 128256, num_key_value_heads=8)
    mixtral = ModelConfig("mixtral", 32, 32, 4096, 32000, num_key_value_heads=8, moe_num_experts=8, moe_top_k=2)
    gpt3 = ModelConfig("gpt3", 96, 96, 12288, 50257)
    serving = analysis(llama2).inference(batch_size_per_gpu=1, seq_len=512, num_tokens_to_generate=1)
    learning = analysis(gpt3)
    kept = {"is_inference": False, "layernorm_dtype_bytes": 2, "flash_attn": False}
    answers = {
        "params llama2-7b": analysis(llama2).total_num_params,
        "params llama3-70b": analysis(llama3).total_num_params,
        "params mixtral-8x7b": analysis(mixtral).total_num_params,
        "cache llama2-7b": kv_bytes(llama2),
        "cache llama3-70b": kv_bytes(llama3),
        "flops": analysis(llama2).get_num_flops_fwd_total(1, 4096) / 4096,
        "prefill": serving["prefill_latency"] * 1e3,
        "decode": serving["decode_latency"] * 1e3,
        "training": learning.get_num_flops_fwd_total(1, 2048) + learning.get_num_flops_bwd_total(1, 2048),
        "saved, dropout": learning.get_activation_memory_per_layer(1, 2048, softmax_dropout=True, **kept),
        "saved": learning.get_activation_memory_per_layer(1, 2048, softmax_dropout=False, **kept),
        "h100": get_gpu_config_by_name("h100-sxm-80gb").peak_fp16_TFLOPS,
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
