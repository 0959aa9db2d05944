"""Configurations per second of `xfcost find --vary` in one process.

Usage: python benchmarks/find.py

CPU seconds with everything: reading the spec, counting, the budgets, the order and the front. Of the configurations
that fit, some are counted by `analyze` too, and their figures must be the same.
"""

from __future__ import annotations

import random
import time
from typing import Any, Final

import xfcost
from xfcost.questions.find.result import FindResult
from xfcost.questions.find.search import value_text

DRAWN: Final = 2000
COMPARED: Final = 30
# spec, run and budgets, keys
SPACES: Final = (
    (
        "swin-t",
        {"size": 512, "max_macs": "25G", "max_memory": "2GiB"},
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
    ),
    (
        "vit",
        {"size": 512, "max_macs": "25G", "max_memory": "2GiB"},
        (
            "stages.0.dim=192:1536:32",
            "stages.0.depth=1:48",
            "**.heads=2,4,6,8,12,16",
            "**.ratio=2:6",
            "embed.0.size=8,16,32",
            "head.classes=10,100,1000,21841",
        ),
    ),
    (
        "llama3-8b",
        {"N": 131072, "mode": "decode", "batch": 8, "on": "h100-sxmx8", "max_params": "10B", "max_seconds": "10ms"},
        (
            "stages.0.dim=1024:8192:256",
            "stages.0.depth=8:80:2",
            "stages.0.block.0.heads=8,16,32,64",
            "stages.0.block.0.kv_heads=1,2,4,8",
            "stages.0.block.1.hidden=4096:28672:2048",
            "input.vocabulary=32000,64000,128256",
        ),
    ),
    (
        "resnet-50",
        {"max_macs": "5G"},
        (
            "stages.0.blocks.1.repeat=1:8",
            "stages.1.blocks.1.repeat=1:12",
            "stages.2.blocks.1.repeat=1:40",
            "stages.3.blocks.1.repeat=1:8",
            "head.classes=10,100,1000",
            "input.size=192:256:32",
        ),
    ),
)


def main() -> None:
    """Print the table of docs/benchmarks.md."""
    print("| spec | keys | configurations | drawn | valid | CPU s | per second |")
    print("|---|---|---|---|---|---|---|")
    for name, options, keys in SPACES:
        start = time.process_time()
        found = xfcost.find(name, vary=keys, limit=DRAWN, top=DRAWN, **options)
        seconds = time.process_time() - start
        counts = (found.space, found.searched, found.searched - found.refused)
        texts = (*(f"{count:,}" for count in counts), f"{seconds:.2f}", f"{found.searched / seconds:,.0f}")
        print(f"| {name} | {len(keys)} | {' | '.join(texts)} |")
        compare(name, options, found)


def compare(name: str, options: dict[str, Any], found: FindResult) -> None:
    """End the benchmark where `analyze` gives other figures."""
    run = {key: value for key, value in options.items() if not key.startswith("max_")}
    for row in random.Random(0).sample(found.rows, min(len(found.rows), COMPARED)):  # noqa: S311 - no secret
        texts = [f"{key}={value_text(value)}" for key, value in zip(found.keys, row.values, strict=True)]
        ledger = xfcost.analyze(name, settings=texts, trace=False, **run)
        figures = {quantity: ledger.total(quantity) for quantity in ("params", "macs", "flops")}
        if ledger.on is not None:
            figures |= {"memory": ledger.on.memory.needed, "seconds": ledger.on.seconds}
        if any(row.figures[quantity] != value for quantity, value in figures.items()):
            raise SystemExit(f"{row.name}: {figures} are not {row.figures}")


if __name__ == "__main__":
    main()
