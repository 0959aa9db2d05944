"""The common family on this machine: one block of each mechanism at two N, in pairs with full attention.

Usage: python benchmarks/efficient.py [preset …]

One block (of an alternating pattern, one of each) of the 12-layer encoder, d=768, batch 1, float32, on the CPU. Every
measurement is a process of its own, right after one of full attention (fused: eager, its scores alone would take
12 GiB); the ratio is of that pair. The slope is between the two N, beside the slope of the counted MACs there.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys

from xfcost import units
from xfcost.spec.load import expanded, load

SMALL, LARGE = 4096, 16384
RUNS = 3
FULL = "common-full"

MEASURE = """
import json, resource, statistics, sys, time
import torch
from xfcost.counted import count
from xfcost.live.build import build
from xfcost.live.memory import peak_bytes
from xfcost.spec.walk import Run, place
from xfcost.spec.load import load

preset, tokens, attention, runs, settings = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5:]
architecture = place(load(preset, settings), Run(tokens=(tokens,), attention=attention))
meta = build(architecture)
live = build(architecture, "cpu")
seconds = []
with torch.no_grad():
    for _ in range(runs + 1):
        start = time.perf_counter()
        live.model(*live.inputs)
        seconds.append(time.perf_counter() - start)
print(json.dumps({
    "seconds": statistics.median(seconds[1:]),
    "live": peak_bytes(meta.model, meta.inputs),
    "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "macs": count(architecture).total("macs"),
}))
"""


def one_of_each(preset: str) -> list[str]:
    """Settings that leave one block of each kind."""
    stages = load(preset).spec.stages or []
    if any(stage.depth is None for stage in stages):
        return []
    return [f"stages.{number}.depth={len(stage.pattern or [0])}" for number, stage in enumerate(stages)]


def measure(preset: str, tokens: int, attention: str = "fused") -> dict[str, float]:
    """Seconds, peak live bytes, peak resident bytes, MACs of a forward."""
    words = [sys.executable, "-c", MEASURE, preset, str(tokens), attention, str(RUNS), *one_of_each(preset)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(preset: str) -> str:
    """One row of the table."""
    small, full, large = measure(preset, SMALL), measure(FULL, LARGE), measure(preset, LARGE)
    blocks = sum(len(stage.pattern or [0]) for stage in load(preset).spec.stages or [])
    ratio = large["seconds"] / (full["seconds"] * blocks)
    slopes = [math.log(large[what] / small[what]) / math.log(LARGE / SMALL) for what in ("seconds", "macs")]
    cells = [preset.removeprefix("common-"), f"{large['seconds'] / blocks:.2f} s", f"{ratio:.2f}"]
    cells += [units.size(int(large["live"]), 3), *(f"{slope:.2f}" for slope in slopes)]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    presets = sys.argv[1:] or expanded(["common-*"])
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, medians of {RUNS} forwards at N = {LARGE:,}.\n")
    print("| mechanism | a block | of full attention's time | peak of live tensors | slope of time | slope of MACs |")
    print("|---|---|---|---|---|---|", flush=True)
    for preset in presets:
        print(line(preset), flush=True)


if __name__ == "__main__":
    main()
