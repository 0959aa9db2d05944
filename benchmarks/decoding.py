"""Time of decode steps as the context grows, and of generation with and without a KV cache.

Usage: python benchmarks/decoding.py

Two blocks of each model, batch 1, float32, on the CPU. A process per model alternates steps at a short and a long
context. The table compares the ratio of the median times with the ratios of counted MACs and of bytes read.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

SHORT, LONG = 256, 32768
ROUNDS = 15
MODELS = {
    "gpt2": ["stages.0.depth=2", "embed.1.length=32768", "input.vocabulary=1000"],
    "llama3.2-1b": ["stages.0.depth=2", "input.vocabulary=1000"],
    "mistral-7b-sliding": ["stages.0.depth=2", "**.window=256", "input.vocabulary=1000"],
    "common-linear": ["stages.0.depth=2", "stages.0.block.0.causal=true"],
    "mamba-130m": ["stages.0.depth=2", "input.vocabulary=1000"],
    "common-lstm": ["stages.0.depth=2"],
}

STEP = """
import json, statistics, sys, time
import torch
from xfcost.counting.forward import count
from xfcost.torch_models.build import build
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

preset, settings, sizes, rounds = json.loads(sys.argv[1])
loaded = load(preset, tuple(settings))
runs = [Run(tokens=(tokens,), mode="decode", dtype="float32", attention="eager") for tokens in sizes]
architectures = [place(loaded, run) for run in runs]
ledgers = [count(architecture) for architecture in architectures]
models = [build(architecture, "cpu") for architecture in architectures]

def seconds(live):
    start = time.perf_counter()
    live.model(*live.inputs)
    return time.perf_counter() - start

with torch.no_grad():
    times = [[seconds(model) for model in models] for _ in range(rounds + 2)][2:]
short, long = (statistics.median(column) for column in zip(*times))
read = [ledger.weights_read() + ledger.total("cached") for ledger in ledgers]
macs = [ledger.total("macs") for ledger in ledgers]
print(json.dumps([short, long / short, macs[1] / macs[0], read[1] / read[0]]))
"""

GENERATION = """
import json, sys, time
import torch
from xfcost.torch_models.build import build
from xfcost.torch_models.shared.cache import set_position
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

preset, settings, prompt, new = json.loads(sys.argv[1])
loaded = load(preset, tuple(settings))

def built(tokens, mode):
    run = Run(tokens=(tokens,), mode=mode, dtype="float32", attention="eager")
    return build(place(loaded, run), "cpu")

def seconds(live):
    start = time.perf_counter()
    live.model(*live.inputs)
    return time.perf_counter() - start

with torch.no_grad():
    passes = [built(tokens, "forward") for tokens in range(prompt, prompt + new)]
    step = built(prompt + new - 1, "decode")
    seconds(passes[0]), seconds(step)
    without = [seconds(live) for live in passes]
    steps = []
    for position in range(prompt, prompt + new - 1):
        set_position(step.model, position)
        steps.append(seconds(step))
print(json.dumps([without[0] + sum(steps), sum(without)]))
"""


def run(code: str, *arguments: object) -> list[float]:
    """The measurements of a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)], check=True, capture_output=True, text=True
    )
    return [float(number) for number in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    """Print both tables."""
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, medians of {ROUNDS} rounds.\n")
    print(
        f"| model, two blocks | step at N = {SHORT} | N = {LONG:,}: time | MACs | bytes read |\n|---|---|---|---|---|"
    )
    for preset, settings in MODELS.items():
        short, *ratios = run(STEP, preset, settings, [SHORT, LONG], ROUNDS)
        print(f"| {preset} | {short * 1e3:.1f} ms | " + " | ".join(f"{ratio:.2f}×" for ratio in ratios) + " |")
    cached, passes = run(GENERATION, "gpt2", ["stages.0.depth=2", "input.vocabulary=1000"], 64, 128)
    print(f"\n128 new tokens after 64 (two blocks of GPT-2): {passes / cached:.1f} times as long without a KV cache.")


if __name__ == "__main__":
    main()
