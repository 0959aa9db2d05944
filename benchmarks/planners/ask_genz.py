"""What GenZ answers to the questions of other_planners.py, as JSON on its last line of output.

Parameters are half its bytes of weights in 16 bits, FLOPs twice its MACs, KV bytes those of a prefill over its tokens.
It plans inference only, and has no DeepSeek-V2. System efficiency is its default, 1; one beam.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

from GenZ import decode_moddeling, prefill_moddeling
from Systems.system_configs import system_configs

MIB = 2**20
TOKENS = 4096


def prefill(model: str) -> dict[str, Any]:
    """The summary of a prefill of 4,096 tokens."""
    given = {"batch_size": 1, "input_tokens": TOKENS, "system_name": "A100_80GB_GPU", "bits": "bf16"}
    _, summary = prefill_moddeling(model=model, model_profilling=True, **given)
    return summary.to_dict("records")[0]


def main() -> None:
    """Print the answers."""
    warnings.simplefilter("ignore")
    llama2, llama3 = prefill("llama2_7b"), prefill("meta-llama/llama-3.1-70b")
    mixtral, deepseek = prefill("mixtral_8x7b"), prefill("deepseek-ai/DeepSeek-V3-Base")
    serving = {"model": "llama2_7b", "batch_size": 1, "input_tokens": 512, "system_name": "A100_80GB_GPU"}
    params, cache = "Total Weights (MB)", "KV Cache (MB)"
    answers = {
        "params llama2-7b": llama2[params] * MIB / 2,
        "params llama3-70b": llama3[params] * MIB / 2,
        "params mixtral-8x7b": mixtral[params] * MIB / 2,
        "cache llama2-7b": llama2[cache] * MIB / TOKENS,
        "cache llama3-70b": llama3[cache] * MIB / TOKENS,
        "cache deepseek-v3": deepseek[cache] * MIB / TOKENS,
        "flops": 2 * llama2["MACs (MFLOP)"] * 1e6 / TOKENS,
        "prefill": prefill_moddeling(bits="bf16", **serving)["Latency"],
        "decode": decode_moddeling(bits="bf16", Bb=1, **serving)["Latency"],
        "h100": system_configs["H100_GPU"]["Flops"],
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
