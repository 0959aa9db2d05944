"""The common family on this machine: one block of each mechanism at two N, in turns with full attention.

Usage: python benchmarks/efficient.py [preset …]

One block (of an alternating pattern, one of each) of the 12-layer encoder, d=768, batch 1, float32, on the CPU. A
process per mechanism runs it in turns with a block of full attention, which is fused (eager, its scores alone would
take 12 GiB); the ratio is that of the best times. The slope is between the two N, beside the slope of the counted MACs.
What would keep more than 4 GiB alive is not run, and says so.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys

from xfcost.ledger import units
from xfcost.spec.load import expanded, load

SMALL, LARGE = 4096, 16384
TURNS = 3
FULL = "common-full"

MEASURE = """
import json, sys, time
import torch
from xfcost.counting.forward import count
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.spec.load import load

preset, settings, full, small, large, turns = json.loads(sys.argv[1])

def placed(name, tokens, attention, settings):
    return place(load(name, settings), Run(tokens=(tokens,), attention=attention))

def seconds(live):
    start = time.perf_counter()
    live.model(*live.inputs)
    return time.perf_counter() - start

at = [placed(preset, tokens, "eager", settings) for tokens in (small, large)]
found = {"macs": [count(one).total("macs") for one in at]}
walked = build(at[1])
found["predicted"] = peak_bytes(walked.model, walked.inputs)
if found["predicted"] < 4 * 2**30:
    other = build(placed(full, large, "fused", ["stages.0.depth=1"]), "cpu")
    lives = [build(one, "cpu") for one in at]
    with torch.no_grad():
        times = [[seconds(live) for live in (*lives, other)] for _ in range(turns + 1)][1:]
    found["seconds"] = [min(column) for column in zip(*times)]
    found["peak"] = peak_bytes(lives[1].model, lives[1].inputs)
print(json.dumps(found))
"""


def one_of_each(preset: str) -> list[str]:
    """Settings that leave one block of each kind."""
    stages = load(preset).spec.stages or []
    return [f"stages.{number}.depth={len(stage.pattern or [0])}" for number, stage in enumerate(stages) if stage.depth]


def line(preset: str) -> str:
    """One row of the table."""
    asked = json.dumps([preset, one_of_each(preset), FULL, SMALL, LARGE, TURNS])
    done = subprocess.run([sys.executable, "-c", MEASURE, asked], check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    slope = math.log(found["macs"][1] / found["macs"][0]) / math.log(LARGE / SMALL)
    name = preset.removeprefix("common-")
    if "seconds" not in found:
        return f"| {name} | – | – | {units.size(found['predicted'], 3)} (not run) | – | {slope:.2f} |"
    blocks = sum(len(stage.pattern or [0]) for stage in load(preset).spec.stages or [] if stage.depth) or 1
    small, large, full = found["seconds"]
    cells = [name, f"{large / blocks:.2f} s", f"{large / blocks / full:.2f}", units.size(found["peak"], 3)]
    cells += [f"{math.log(large / small) / math.log(LARGE / SMALL):.2f}", f"{slope:.2f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    presets = sys.argv[1:] or [name for name in expanded(["common-*"]) if name != FULL]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, best of {TURNS} forwards at N = {LARGE:,}.\n")
    print("| mechanism | a block | of full attention's time | peak of live tensors | slope of time | slope of MACs |")
    print("|---|---|---|---|---|---|", flush=True)
    for preset in presets:
        print(line(preset), flush=True)


if __name__ == "__main__":
    main()
