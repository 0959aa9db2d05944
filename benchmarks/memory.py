"""Peak of live tensors, predicted on `meta`, and growth of the process on the CPU: the table of one machine.

Usage: python benchmarks/memory.py [--further] [--processes n] [preset …]

A process runs each preset: a forward pass or a training step (AdamW) with 1 or 8 samples, float32. The measured growth
is the high-water mark of the resident set (VmHWM) over building the model and four passes, minus the resident set after
imports, prediction and a warm-up of each kernel at a tiny size, and minus pages of files (`timing/growth.py`). The same
run differs between processes, so that `--processes n` takes the median of n. The margin that a run must have free holds
where the growth is not above it. Cases above 2 GiB or 40 GMACs are left out. Only Linux has a high-water mark.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from typing import NamedTuple

from xfcost.spec.load import expanded

CASES = [("forward", 1), ("forward", 8), ("train", 1), ("train", 8)]
# One or two of each family.
# fmt: off
PRESETS = [
    "vit-ti32", "deit-s", "cait-xs36", "vit-s32-384", "swin-t", "swinv2-s-w8-256", "twins-pcpvt-b", "pvt-v2-b2",
    "mvit-b-16", "cvt-21", "mixer-s16", "gmlp-s", "resmlp-s24", "poolformer-s24", "convnext-t", "resnet-18",
    "resnet-50-v1", "resnext-101-32x4d", "regnety-1.6gf", "mobilevit-xs", "wide-resnet-50-2", "non-local-res3",
    "lr-net-50", "sagan-64", "conformer-m", "rnnsearch", "transformer-xl-wt103", "set-transformer",
    "hyenadna-tiny-1k", "linear-transformer-mnist",
]
# fmt: on

# Other presets, batches, optimizers, decode steps, fused attention.
FURTHER = """
efficientnet-b0 forward 4, efficientnet-b2 forward 1, mobilenetv2-1.0 forward 4, vgg-11 forward 1, resnet-50 forward 2,
resnet-34 train 2 sgd, regnetx-400mf forward 4, regnety-800mf train 1 sgd, cait-xxs24 train 2,
swin-t forward 4 adamw fused, vit-s16 train 2 adamw fused, vit-ti16 forward 4 adamw fused, gmlp-ti train 4,
resmlp-s12 train 2 sgd, poolformer-s12 train 2, convnext-t train 1 sgd, mixer-s32 train 4 momentum, pvt-tiny forward 4,
pvt-v2-b1 train 2, twins-svt-s forward 2, mvitv2-t forward 2, cvt-13 train 1 sgd, bert-base forward 2, gpt2 decode 1,
gpt2 decode 4 adamw fused, t5-small decode 2, transformer-base forward 2, lr-net-26 forward 4, non-local-res4 forward 2,
sasa-26 forward 1, mobilevit-xxs train 4, sagan forward 2, conformer-s train 2 sgd, set-transformer forward 4,
fnet-base forward 2, mamba-130m forward 1, resnext-50-32x4d train 1 sgd, efficientnet-b0 train 2,
swinv2-t-w8-256 forward 2, deit3-s train 2 lion, rwkv4-169m decode 1, linear-transformer-cifar10 forward 1,
regnety-400mf train 4 sgd, gpt1 decode 2, bert-base train 1 sgd, vgg-11-bn train 1 sgd
"""

MEASURE = """
import json, sys, time

from xfcost.counting.forward import count
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.peak import bytes_to_run, peak_bytes
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.timing.growth import peak_of, repeat
from xfcost.torch_models.timing.systems import forward, training_step
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

preset, mode, batch, optimizer, attention, max_bytes, max_macs = json.loads(sys.argv[1])
architecture = place(load(preset), Run(batch=batch, mode=mode, dtype="float32", attention=attention))
macs = count(architecture).total("macs") * (3 if mode == "train" else 1)
on_meta = build(architecture)
live = (
    Stepping(on_meta, optimizer, lists=False).peak()
    if mode == "train"
    else peak_bytes(on_meta.model, on_meta.inputs)
)
result = {"live": live, "needed": bytes_to_run(live, "cpu"), "measured": None}
if live <= max_bytes and macs <= max_macs:
    def run():
        given = ("cpu", time.perf_counter)
        ready = (
            training_step(architecture, optimizer, *given, compile_=False)
            if mode == "train"
            else forward(architecture, *given, compile_=False)
        )
        repeat(ready.calls[""])

    result["measured"] = peak_of(run, "cpu", backward=mode == "train")
print(json.dumps(result))
"""
MAX_BYTES, MAX_MACS = 2 * 2**30, 40 * 10**9


class Case(NamedTuple):
    """A preset and how it runs."""

    preset: str
    mode: str
    batch: int
    optimizer: str = "adamw"
    attention: str = "eager"


class Result(NamedTuple):
    """Bytes: live tensors, what must be free for a run, and the growth of each process."""

    live: int
    needed: int
    measured: list[int]

    @property
    def ratio(self) -> float:
        """Growth over live tensors, the median of the processes."""
        return statistics.median(self.measured) / self.live


def further() -> list[Case]:
    """The cases of FURTHER."""
    cases = [one.split() for one in FURTHER.split(",")]
    return [Case(preset, mode, int(batch), *rest) for preset, mode, batch, *rest in cases]


def measured(case: Case, processes: int) -> Result | None:
    """The case in so many processes, one after the other; None if it is left out."""
    arguments = json.dumps([*case, MAX_BYTES, MAX_MACS])
    found = []
    for _ in range(processes):
        done = subprocess.run([sys.executable, "-c", MEASURE, arguments], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, case))}: {done.stderr}")
        found.append(json.loads(done.stdout.splitlines()[-1]))
        if found[0]["measured"] is None:
            return None
    first = found[0]
    return Result(first["live"], first["needed"], [one["measured"] for one in found])


def summary(mode: str, results: list[Result]) -> str:
    """The spread of the ratios, and how often the margin holds."""
    ratios = sorted(result.ratio for result in results)
    holds = sum(max(result.measured) <= result.needed for result in results)
    return (
        f"{mode}: growth / live {ratios[0]:.2f} to {ratios[-1]:.2f}, median {statistics.median(ratios):.2f}; "
        f"not above what must be free in {holds} of {len(results)}"
    )


def line(case: Case, result: Result) -> str:
    """The case's line of the table."""
    growth = sorted(round(number / 1e6) for number in result.measured)
    cells = [*map(str, case), f"{result.live / 1e6:.0f}", f"{result.needed / 1e6:.0f}"]
    return "| " + " | ".join([*cells, " ".join(map(str, growth)), f"{result.ratio:.2f}"]) + " |"


def main() -> None:
    """Print the table, and a line for each mode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--further", action="store_true", help="further cases")
    parser.add_argument("--processes", type=int, default=1, help="processes of each case (1)")
    parser.add_argument("presets", nargs="*")
    options = parser.parse_args()
    presets = expanded(options.presets) or PRESETS
    cases = further() if options.further else [Case(preset, *run) for preset in presets for run in CASES]
    print(f"Python {platform.python_version()}, {platform.libc_ver()[1]}, {platform.machine()}.\n")
    print("| preset | mode | batch | optimizer | attention | live, MB | must be free | growth | growth / live |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    results: dict[str, list[Result]] = {}
    for case in cases:
        result = measured(case, options.processes)
        if result is not None:
            results.setdefault(case.mode, []).append(result)
            print(line(case, result), flush=True)
    for mode, of_mode in results.items():
        print("\n" + summary(mode, of_mode))


if __name__ == "__main__":
    main()
