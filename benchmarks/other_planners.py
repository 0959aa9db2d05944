"""The same questions to xfcost and to other planners of language models, beside the truth where it is published.

Usage: python benchmarks/other_planners.py [--python PATH]

The others run in the environment of the Python at PATH (`pip install llm-analysis genz-llm llm-flops`); those that it
lacks are skipped, and named. Their questions are in planners/, one script each.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import xfcost
from xfcost.counting.devices import read_devices

OTHERS = {"llm-analysis": "ask_llm_analysis.py", "genz-llm": "ask_genz.py", "llm-flops": "ask_llm_flops.py"}
VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"

LLAMA2, GPT3 = "llama2-7b", "gpt3-175b"
LLAMA2_LINEAR = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008) + 32000 * 4096  # matrices of the blocks and the head
LLAMA2_READ = LLAMA2_LINEAR + 65 * 4096 + 4096  # with the norms and one row of the embedding
LLAMA2_PAIRS = 512 * 513 // 2  # of queries and keys, that a causal mask keeps of 512 tokens
GPT3_TOKENS_TIMES_WIDTH = 2048 * 12288

# Of an A100 SXM with 80 GB, in print: dense bf16 FLOP/s, B/s.
A100_FLOPS_PER_SECOND, A100_BYTES_PER_SECOND = 312e12, 2039e9
ON = {"on": "a100-sxm-80", "dtype": "bfloat16", "attention": "fused"}

# There is no package of it to run. Its source, at commit f307ca5, states 1979e12/2 FLOP/s for the H100.
READ = {"LLM-Viewer (no package: read, not run)": {"h100": 989.5}}


class Question(NamedTuple):
    """What is asked of each planner."""

    text: str
    truth: float
    source: str
    digits: int = 0
    """Decimal places that are printed."""


QUESTIONS = {
    "params llama2-7b": Question("parameters: Llama 2 7B", 6_738_415_616, "the public model"),
    "params llama3-70b": Question("parameters: Llama 3 70B", 70_553_706_496, "the public model"),
    "params mixtral-8x7b": Question("parameters: Mixtral 8x7B", 46_702_792_704, "the public model"),
    "cache llama2-7b": Question("KV cache per token, 16 bits: Llama 2 7B (B)", 524_288, "2·L·d·2 B"),
    "cache llama3-70b": Question("KV cache: Llama 3 70B (B)", 327_680, "2·L·8·128·2 B"),
    "cache deepseek-v2": Question("KV cache: DeepSeek-V2 (B)", 69_120, "paper: 34,560 elements"),
    "cache deepseek-v3": Question("KV cache: DeepSeek-V3 (B)", 70_272, "ISCA 2025, Table 1"),
    "flops": Question(
        "forward FLOPs per token, matrix products, N = 4,096: Llama 2 7B",
        2 * (LLAMA2_LINEAR + 2 * 32 * 4096 * 4096),
        "torch's counter on `meta`",
    ),
    "prefill": Question(
        "lower bound of a forward pass, A100 80 GB, N = 512, all logits: Llama 2 7B (ms)",
        2 * (512 * LLAMA2_LINEAR + 2 * 32 * 4096 * LLAMA2_PAIRS) / A100_FLOPS_PER_SECOND * 1e3,
        "FLOPs / 312 TFLOP/s, of scores those that the mask keeps",
        digits=3,
    ),
    "decode": Question(
        "lower bound of a decode step, A100 80 GB, N = 512: Llama 2 7B (ms)",
        (2 * LLAMA2_READ + 512 * 524_288) / A100_BYTES_PER_SECOND * 1e3,
        "(weights + cache) / 2,039 GB/s",
        digits=3,
    ),
    "training": Question(
        "model FLOPs of a training step, one sequence of 2,048: GPT-3 175B",
        72 * GPT3_TOKENS_TIMES_WIDTH * 96 * 12288 + 12 * GPT3_TOKENS_TIMES_WIDTH * 96 * 2048 + 6 * 50257 * 2048 * 12288,
        "Korthikanti et al. 2022",
    ),
    "saved, dropout": Question(
        "saved activations per layer, 16 bits, score matrices kept, dropout: GPT-3 175B (B)",
        34 * GPT3_TOKENS_TIMES_WIDTH + 5 * 96 * 2048 * 2048,
        "Korthikanti et al. 2022: sbh(34 + 5as/h)",
    ),
    "saved": Question(
        "the same without dropout (B)",
        32 * GPT3_TOKENS_TIMES_WIDTH + 2 * 96 * 2048 * 2048,
        "the same less masks and dropped copies: sbh(32 + 2as/h)",
    ),
    "h100": Question("peak of an H100 SXM in bf16 (TFLOP/s)", 989.4, "datasheet, dense", digits=1),
}


def least_milliseconds(mode: str) -> float:
    """Our lower bound of a run of Llama 2 7B at N = 512 in 16 bits on an A100."""
    logits = {"logits": "all"} if mode == "prefill" else {}
    return 1e3 * xfcost.analyze(LLAMA2, N=512, trace=False, mode=mode, **ON, **logits).on.seconds


def saved_bytes() -> float:
    """What a block of GPT-3 saves for its backward pass."""
    ledger = xfcost.analyze(GPT3, N=2048, trace=False, mode="train", dtype="bfloat16", attention="eager")
    blocks = (row for row in ledger.rows if row.in_block)
    return sum(row.training.kept_bytes for row in blocks) / 96


def cache_bytes(preset: str) -> int:
    """KV bytes of one token."""
    return xfcost.analyze(preset, N=1, trace=False, mode="decode", dtype="bfloat16").cached_bytes


def ours() -> dict[str, float]:
    """Our answers."""
    step = xfcost.analyze(GPT3, N=2048, trace=False, mode="train", dtype="bfloat16", attention="eager").training.step
    models = (LLAMA2, "llama3-70b", "mixtral-8x7b")
    return {
        **{f"params {name}": xfcost.analyze(name, trace=False).total("params") for name in models},
        **{f"cache {name}": cache_bytes(name) for name in (LLAMA2, "llama3-70b", "deepseek-v2", "deepseek-v3")},
        "flops": 2 * xfcost.analyze(LLAMA2, N=4096, trace=False).total("macs") / 4096,
        "prefill": least_milliseconds("prefill"),
        "decode": least_milliseconds("decode"),
        "training": step.model_flops,
        "saved": saved_bytes(),
        "h100": read_devices("h100-sxm").peak("bfloat16") / 1e12,
    }


def theirs(python: str | None) -> dict[str, dict[str, float]]:
    """The answers of the others that are installed, by name and version; the rest is named on stderr."""
    found: dict[str, dict[str, float]] = {}
    for name, script in OTHERS.items():
        version = python and subprocess.run([python, "-c", VERSION, name], check=False, capture_output=True, text=True)
        if not version or version.returncode:
            where = f"{python} lacks it" if python else "no --python was given"
            print(f"skipped: {name} ({where})", file=sys.stderr)
            continue
        asked = [python, str(Path(__file__).parent / "planners" / script)]
        done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True)
        found[f"{name} {version.stdout.strip()}"] = json.loads(done.stdout.splitlines()[-1])
    return found


def cell(question: Question, answer: float | None) -> str:
    """An answer: `exact`, or the number and how far it is from the truth; a dash where there is none."""
    if answer is None:
        return "–"
    if math.isclose(answer, question.truth, rel_tol=1e-12):
        return "exact"
    percent = f"{(answer / question.truth - 1) * 100:+.2g} %".replace("-", "−")
    return f"{answer:,.{question.digits}f} ({percent})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the Python of an environment with the other planners")
    columns = {"xfcost": ours(), **theirs(parser.parse_args().python), **READ}
    print(f"| question | truth | its source | {' | '.join(columns)} |")
    print("|---" * (3 + len(columns)) + "|")
    for key, asked in QUESTIONS.items():
        cells = [asked.text, f"{asked.truth:,.{asked.digits}f}", asked.source]
        print("| " + " | ".join(cells + [cell(asked, column.get(key)) for column in columns.values()]) + " |")


if __name__ == "__main__":
    main()
