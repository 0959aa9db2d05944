"""Memory growth of a process on the CPU, predicted and measured: the table of one machine.

Usage: python benchmarks/memory.py [preset …]

A process runs each preset: a forward pass or a training step (AdamW) with 1 or 8 samples, float32. The measured growth
is the high-water mark of the resident set (VmHWM) over four passes after building the model, minus the resident set
after imports, prediction and a warm-up of each kernel at a tiny size. Cases above 2 GiB (the high end of the
prediction) or 40 GMACs are left out. Only Linux has a high-water mark.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys

from xfcost.spec.load import expanded

TOLERANCE = 0.15
CASES = [("forward", 1), ("forward", 8), ("train", 1), ("train", 8)]
# One or two of each family.
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
import json, sys

from xfcost.counting.forward import count
from xfcost.torch_models.memory.process import forward_memory, training_memory
from xfcost.torch_models.timing.growth import measured_peak
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

preset, mode, batch, max_bytes, max_macs = json.loads(sys.argv[1])
architecture = place(load(preset), Run(batch=batch, mode=mode, dtype="float32", attention="eager"))
macs = count(architecture).total("macs") * (3 if mode == "train" else 1)
prediction = training_memory(architecture, "adamw") if mode == "train" else forward_memory(architecture)
result = {"predicted": prediction.predicted, "low": prediction.low, "high": prediction.high, "measured": None}
if prediction.high <= max_bytes and macs <= max_macs:
    result["measured"] = measured_peak(architecture, "cpu", "adamw" if mode == "train" else None)
print(json.dumps(result))
"""
MAX_BYTES, MAX_MACS = 2 * 2**30, 40 * 10**9


def measured(preset: str, mode: str, batch: int) -> dict[str, int | None]:
    """Predicted, low, high and measured bytes of a separate process; measured is None if the case is left out."""
    arguments = json.dumps([preset, mode, batch, MAX_BYTES, MAX_MACS])
    done = subprocess.run([sys.executable, "-c", MEASURE, arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{preset}, {mode}, batch {batch}: {done.stderr}")
    result: dict[str, int | None] = json.loads(done.stdout.splitlines()[-1])
    return result


def summary(mode: str, results: list[dict[str, int]]) -> str:
    """How many are within the tolerance, and within their interval."""
    near = sum(abs(result["predicted"] / result["measured"] - 1) <= TOLERANCE for result in results)
    inside = sum(result["low"] <= result["measured"] <= result["high"] for result in results)
    under = sum(result["measured"] <= result["high"] for result in results)
    return (
        f"{mode}: {near} of {len(results)} predicted within {TOLERANCE:.0%}; {inside} within their interval, "
        f"{under} not above its high end"
    )


def main() -> None:
    """Print the table, and a line for each mode."""
    presets = expanded(sys.argv[1:]) or PRESETS
    print(f"Python {platform.python_version()}, {platform.libc_ver()[1]}, {platform.machine()}.\n")
    print("| preset | mode | batch | predicted, MB | interval | measured | predicted / measured |")
    print("|---|---|---|---|---|---|---|", flush=True)
    results: dict[str, list[dict[str, int]]] = {"forward": [], "train": []}
    for preset in presets:
        for mode, batch in CASES:
            result = measured(preset, mode, batch)
            if result["measured"] is None:
                continue
            results[mode].append({name: int(number or 0) for name, number in result.items()})
            predicted, low, high, growth = (
                (result[name] or 0) / 1e6 for name in ("predicted", "low", "high", "measured")
            )
            cells = [preset, mode, str(batch), f"{predicted:.0f}", f"{low:.0f} to {high:.0f}", f"{growth:.0f}"]
            print("| " + " | ".join([*cells, f"{predicted / growth:.2f}"]) + " |", flush=True)
    for mode, of_mode in results.items():
        print("\n" + summary(mode, of_mode))


if __name__ == "__main__":
    main()
