"""Time and memory of the common family: one block of each mechanism at two N, compared with full attention.

Usage: python benchmarks/efficient.py [preset …]

One block (of an alternating pattern, one of each) of the 12-layer encoder, d=768, batch 1, float32, on the CPU. A
process per mechanism alternates it with a block of full attention, which is fused (eager, its scores alone would take
12 GiB). The ratio is that of the best times. The slopes of time and of counted MACs are between the two N. A mechanism
that would hold more than 4 GiB alive does not run; its row says so.
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
ROUNDS = 3
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

preset, settings, full, small, large, rounds = json.loads(sys.argv[1])

def placed(name, tokens, attention, settings):
    return place(load(name, settings), Run(tokens=(tokens,), attention=attention))

def seconds(live):
    start = time.perf_counter()
    live.model(*live.inputs)
    return time.perf_counter() - start

architectures = [placed(preset, tokens, "eager", settings) for tokens in (small, large)]
result = {"macs": [count(architecture).total("macs") for architecture in architectures]}
on_meta = build(architectures[1])
result["predicted"] = peak_bytes(on_meta.model, on_meta.inputs)
if result["predicted"] < 4 * 2**30:
    full_attention = build(placed(full, large, "fused", ["stages.0.depth=1"]), "cpu")
    models = [build(architecture, "cpu") for architecture in architectures]
    with torch.no_grad():
        times = [[seconds(model) for model in (*models, full_attention)] for _ in range(rounds + 1)][1:]
    result["seconds"] = [min(column) for column in zip(*times)]
    result["peak"] = peak_bytes(models[1].model, models[1].inputs)
print(json.dumps(result))
"""


def one_of_each(preset: str) -> list[str]:
    """Settings that leave one block of each kind."""
    stages = load(preset).spec.stages or []
    return [f"stages.{number}.depth={len(stage.pattern or [0])}" for number, stage in enumerate(stages) if stage.depth]


def line(preset: str) -> str:
    """One row of the table."""
    arguments = json.dumps([preset, one_of_each(preset), FULL, SMALL, LARGE, ROUNDS])
    done = subprocess.run([sys.executable, "-c", MEASURE, arguments], check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    slope = math.log(result["macs"][1] / result["macs"][0]) / math.log(LARGE / SMALL)
    name = preset.removeprefix("common-")
    if "seconds" not in result:
        return f"| {name} | – | – | {units.size(result['predicted'], 3)} (not run) | – | {slope:.2f} |"
    blocks = sum(len(stage.pattern or [0]) for stage in load(preset).spec.stages or [] if stage.depth) or 1
    small, large, full = result["seconds"]
    cells = [name, f"{large / blocks:.2f} s", f"{large / blocks / full:.2f}", units.size(result["peak"], 3)]
    cells += [f"{math.log(large / small) / math.log(LARGE / SMALL):.2f}", f"{slope:.2f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    presets = sys.argv[1:] or [name for name in expanded(["common-*"]) if name != FULL]
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, best of {ROUNDS} forward runs at N = {LARGE:,}.\n"
    )
    print("| mechanism | one block | ratio to full attention | peak of live tensors | slope of time | slope of MACs |")
    print("|---|---|---|---|---|---|", flush=True)
    for preset in presets:
        print(line(preset), flush=True)


if __name__ == "__main__":
    main()
