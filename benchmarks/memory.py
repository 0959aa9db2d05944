"""What a process grows by on the CPU, predicted before anything is allocated and measured: the table of one machine.

Usage: python benchmarks/memory.py [preset …]

Each preset, a forward or a step of training (AdamW) of 1 or 8 samples, float32, has a process of its own. Measured is
the high-water mark of the resident set (VmHWM) over four passes after building the model, less what was resident after
the imports, the prediction and a warm-up of each kernel at a tiny size. What is predicted to take more than 2 GiB at
worst, or to need more than 40 GMACs, isn't run, and is left out. Linux alone tells a high-water mark.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys

from xfcost.spec.load import expanded

TOLERANCE = 0.15
CASES = [("forward", 1), ("forward", 8), ("train", 1), ("train", 8)]
# Of each family one or two, from the small to what fits.
# fmt: off
PRESETS = [
    "vit-ti32", "deit-s", "cait-xs36", "vit-s32-384", "swin-t", "swinv2-s-w8-256", "modules-pcpvt-b", "pvt-v2-b2",
    "mvit-b-16", "cvt-21", "mixer-s16", "gmlp-s", "resmlp-s24", "poolformer-s24", "convnext-t", "resnet-18",
    "resnet-50-v1", "resnext-101-32x4d", "regnety-1.6gf", "mobilevit-xs", "wide-resnet-50-2", "non-local-res3",
    "lr-net-50", "sagan-64", "conformer-m", "rnnsearch", "transformer-xl-wt103", "set-transformer",
    "hyenadna-tiny-1k", "linear-transformer-mnist",
]
# fmt: on

MEASURE = """
import gc, json, re, sys
from pathlib import Path

import torch
from torch import nn

from xfcost.counting.forward import count
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.process import forward_memory, training_memory
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.spec.load import load
from xfcost.spec.walk import Run, place

preset, mode, batch, most, longest = json.loads(sys.argv[1])
PASSES = 4


def resident(field):
    return int(re.search(field + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def warm_up():
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1, groups=8)]
    model = nn.Sequential(*layers, nn.Flatten(2), nn.LayerNorm(64), nn.Linear(64, 64), nn.Softmax(-1))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    torch.bmm(torch.randn(4, 8, 8), torch.randn(4, 8, 8))
    torch.randn(300, 300) @ torch.randn(300, 300)


at = place(load(preset), Run(batch=batch, mode=mode))
macs = count(at).total("macs") * (3 if mode == "train" else 1)
found = training_memory(at, "adamw") if mode == "train" else forward_memory(at)
told = {"predicted": found.predicted, "low": found.low, "high": found.high, "measured": None}
if found.high <= most and macs <= longest:
    warm_up()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = resident("VmRSS")
    live = build(at, "cpu")
    call = Stepping(live, "adamw", lists=False) if mode == "train" else lambda: live.model(*live.inputs)
    with torch.set_grad_enabled(mode == "train"):
        for _ in range(PASSES):
            call()
    told["measured"] = resident("VmHWM") - before
print(json.dumps(told))
"""
MOST_BYTES, MOST_MACS = 2 * 2**30, 40 * 10**9


def measured(preset: str, mode: str, batch: int) -> dict[str, int | None]:
    """Bytes predicted, low, high and measured, by a process of its own; measured is None where it wasn't run."""
    asked = json.dumps([preset, mode, batch, MOST_BYTES, MOST_MACS])
    done = subprocess.run([sys.executable, "-c", MEASURE, asked], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{preset}, {mode}, batch {batch}: {done.stderr}")
    told: dict[str, int | None] = json.loads(done.stdout.splitlines()[-1])
    return told


def summary(mode: str, told: list[dict[str, int]]) -> str:
    """How many lie within the tolerance, and within their interval."""
    near = sum(abs(one["predicted"] / one["measured"] - 1) <= TOLERANCE for one in told)
    inside = sum(one["low"] <= one["measured"] <= one["high"] for one in told)
    under = sum(one["measured"] <= one["high"] for one in told)
    return (
        f"{mode}: {near} of {len(told)} predicted within {TOLERANCE:.0%}; {inside} within their interval, "
        f"{under} not above its high end"
    )


def main() -> None:
    """Print the table, and a line for each mode."""
    presets = expanded(sys.argv[1:]) or PRESETS
    print(f"Python {platform.python_version()}, {platform.libc_ver()[1]}, {platform.machine()}.\n")
    print("| preset | mode | batch | predicted, MB | interval | measured | predicted / measured |")
    print("|---|---|---|---|---|---|---|", flush=True)
    kept: dict[str, list[dict[str, int]]] = {"forward": [], "train": []}
    for preset in presets:
        for mode, batch in CASES:
            one = measured(preset, mode, batch)
            if one["measured"] is None:
                continue
            kept[mode].append({name: int(number or 0) for name, number in one.items()})
            predicted, low, high, found = ((one[name] or 0) / 1e6 for name in ("predicted", "low", "high", "measured"))
            cells = [preset, mode, str(batch), f"{predicted:.0f}", f"{low:.0f} to {high:.0f}", f"{found:.0f}"]
            print("| " + " | ".join([*cells, f"{predicted / found:.2f}"]) + " |", flush=True)
    for mode, told in kept.items():
        print("\n" + summary(mode, told))


if __name__ == "__main__":
    main()
