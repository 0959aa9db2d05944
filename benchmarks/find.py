"""Configurations per second of `xfcost find --vary` in one process, beside counting them one at a time.

Usage: python benchmarks/find.py

CPU seconds with everything: reading the spec, counting its parts, adding, the budgets, the order and the front. Of
every space a sample is also counted one configuration at a time, and its figures must be the same.
"""

from __future__ import annotations

import json
import random
import time
from typing import Final

import numpy as np

from xfcost.counting.devices import read_devices
from xfcost.counting.find.costs import model_costs, totals
from xfcost.counting.find.result import Question, figures_of
from xfcost.counting.find.search import Varied, find_in_ranges
from xfcost.counting.find.space import Builder
from xfcost.counting.find.variables import read_variables
from xfcost.ledger.budgets import read_budgets
from xfcost.ledger.errors import XfcostError
from xfcost.spec.load import load
from xfcost.spec.run import Run

SAMPLE: Final = 300
# spec, run, devices, keys, budgets
SPACES: Final = (
    (
        "swin-t",
        Run(size=(512, 512)),
        None,
        (
            "stages.each.dim=[96,192,384,768],[64,128,256,512],[48,96,192,384],[128,256,512,1024]",
            "stages.*.pattern.*.0.size=7,8,14,16",
            "stages.*.pattern.*.1.ratio=2:6",
            "stages.0.depth=1:5",
            "stages.1.depth=1:5",
            "stages.2.depth=2:40:2",
            "stages.3.depth=1:5",
            "head.classes=100,1000",
            "stages.0.pattern.*.0.heads=1,2,4",
        ),
        {"macs": "25G", "memory": "2GiB"},
    ),
    (
        "vit",
        Run(size=(512, 512)),
        None,
        (
            "stages.0.dim=192:1536:32",
            "stages.0.depth=1:48",
            "**.heads=2,4,6,8,12,16",
            "**.ratio=2:6",
            "embed.0.size=8,16,32",
            "head.classes=10,100,1000,21841",
        ),
        {"macs": "25G", "memory": "2GiB"},
    ),
    (
        "llama3-8b",
        Run(tokens=(131072,), mode="decode", dtype="bfloat16", attention="fused", batch=8),
        "h100-sxmx8",
        (
            "stages.0.dim=1024:8192:256",
            "stages.0.depth=8:80:2",
            "stages.0.block.0.heads=8,16,32,64",
            "stages.0.block.0.kv_heads=1,2,4,8",
            "stages.0.block.1.hidden=4096:28672:2048",
            "input.vocabulary=32000,64000,128256",
        ),
        {"params": "10B", "memory": "80GB", "seconds": "10ms"},
    ),
    (
        "resnet-50",
        Run(),
        None,
        (
            "stages.0.blocks.1.repeat=1:8",
            "stages.1.blocks.1.repeat=1:12",
            "stages.2.blocks.1.repeat=1:40",
            "stages.3.blocks.1.repeat=1:8",
            "head.classes=10,100,1000",
            "input.size=192:256:32",
        ),
        {"macs": "5G"},
    ),
)


def main() -> None:
    """Print the table of docs/benchmarks.md."""
    print("| spec | keys | configurations | not refused | CPU s | per second | one at a time | times as fast |")
    print("|---|---|---|---|---|---|---|---|")
    for name, run, devices, keys, budgets in SPACES:
        varied = Varied(name, (), read_variables(keys))
        question = Question(read_budgets(budgets))
        start = time.process_time()
        found = find_in_ranges(varied, run._replace(on=read_devices(devices) if devices else None), question)
        seconds = time.process_time() - start
        alone = SAMPLE / checked(varied, run)
        rate = found.searched / seconds
        valid = f"{found.searched - found.refused:,}"
        cells = (name, len(keys), f"{found.searched:,}", valid, f"{seconds:.2f}", f"{rate:,.0f}", f"{alone:,.0f}")
        print(f"| {' | '.join(map(str, cells))} | {rate / alone:,.0f} |")


def checked(varied: Varied, run: Run) -> float:
    """Count a sample one configuration at a time: the seconds; a difference ends the benchmark."""
    dtype = run.dtype or "float32"
    on = read_devices("a100-sxm-80")
    draw = random.Random(0)  # noqa: S311 - no secret
    drawn = [tuple(draw.randrange(size) for size in varied.sizes) for _ in range(SAMPLE)]
    start, alone = time.process_time(), []
    for one in drawn:
        texts = [
            f"{variable.key}={json.dumps(variable.values[number])}"
            for variable, number in zip(varied.variables, one, strict=True)
        ]
        try:
            alone.append(figures_of(totals(model_costs(load(varied.name, texts), run), dtype, on)))
        except XfcostError:
            alone.append(None)
    seconds = time.process_time() - start
    space = Builder(load(varied.name), run, list(enumerate(varied.variables)), varied.sizes).space()
    for one, counted in zip(drawn, alone, strict=True):
        costs, reasons = space.terms.at([np.array([number]) for number in one])
        if (counted is None) != bool(reasons[0]):
            raise SystemExit(f"{varied.name} {one}: refused in one way and not in the other")
        if counted is not None:
            for name, value in figures_of(totals(costs, dtype, on)).items():
                if value.item(0) != counted[name]:
                    raise SystemExit(f"{varied.name} {one}: {name} differs")
    return seconds


if __name__ == "__main__":
    main()
